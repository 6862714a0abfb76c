# Counts words in calls of `batch` paragraphs: a program that is no Python, for sweeps/command.yaml.
# It appends two figures of the whole run to the file that JOBKIT_METRICS names, if there is one.
BEGIN { RS = ""; out = ENVIRON["JOBKIT_METRICS"]; if (out == "") out = "/dev/stdout" }
{
    words += NF
    calls += batch == 1 || NR % batch == 1
    for (i = 1; i <= NF; i++) seen[tolower($i)]++
}
END {
    for (word in seen) different++
    printf "{\"metric\": \"words\", \"value\": %d, \"unit\": \"1\"}\n", words >> out
    printf "{\"metric\": \"different\", \"value\": %.2f, \"unit\": \"%%\"}\n", 100 * different / words >> out
    print calls " calls of " batch " paragraphs: " words " words"
}
