// Sorts tables by a click on a head, says which tables scroll, and adds a button that copies the lines of a
// block. The page is whole without it.
"use strict";
(function () {
  function value(row, column) {
    const text = row.cells[column].textContent.trim();
    const found = text.replace(/,/g, "").match(/^[-+]?\d+(\.\d+)?/);
    return found ? Number(found[0]) : text;
  }
  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return a.localeCompare(b);
  }
  document.querySelectorAll("table").forEach(function (table) {
    const body = table.tBodies[0];
    if (body.rows.length < 2) return;
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach(function (head, column) {
      if (!head.textContent) return;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.textContent = "";
      head.append(button);
      button.addEventListener("click", function () {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach(function (other) { other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = Array.from(body.rows).map(function (row) { return [value(row, column), row]; });
        rows.sort(function (a, b) { return down ? compare(b[0], a[0]) : compare(a[0], b[0]); });
        rows.forEach(function (pair) { body.append(pair[1]); });
      });
    });
  });
  document.querySelectorAll(".wide").forEach(function (box) {
    const words = document.createElement("p");
    words.className = "scrolls";
    words.textContent = "This table is wider than the page: scroll it sideways \u2192";
    box.before(words);
    new ResizeObserver(function () { words.hidden = box.scrollWidth <= box.clientWidth; }).observe(box);
  });
  if (navigator.clipboard) {
    document.querySelectorAll("pre").forEach(function (block) {
      const text = block.textContent;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "Copy";
      button.addEventListener("click", function () {
        navigator.clipboard.writeText(text).then(function () { button.textContent = "Copied"; });
      });
      block.before(button);
    });
  }
})();
