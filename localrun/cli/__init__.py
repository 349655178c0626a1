"""The command line: arguments in, one call, output out.

main      the process: signals, errors → messages and exit codes
app       which commands there are, imported only when asked for
generate  …and the other commands, one module each
inputs    files, stdin and PROMPT → one text
output    events → stdout and stderr
"""
