// Sphinx's scores, except that a heading with the words of the question comes before all pages.
var Scorer = {
  score: ([_page, _title, _anchor, _descr, score, _file, kind]) => (kind === "title" ? score + 20 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
