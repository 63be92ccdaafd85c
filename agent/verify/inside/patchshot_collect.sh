#!/bin/sh
# Runs a command whose results do not come by themselves to the report of the sandbox.
#
#   patchshot_collect.sh stdout - COMMAND...        its standard output is the report
#   patchshot_collect.sh merged - COMMAND...        the output in one stream, errors where they fell
#   patchshot_collect.sh files PATTERN COMMAND...   the files that it wrote (find -path) are the
#                                                   report: each after a line with a record separator
#                                                   and its name. Files of that name that are there
#                                                   already are removed first.
#
# The exit code is the command's. The command does not learn where the report goes.
mode=$1 pattern=$2
shift 2
exec 9>>"${SANDBOX_REPORT:-/dev/null}"
unset SANDBOX_REPORT SANDBOX_JUNIT

case $mode in
stdout)
    "$@" >&9 9>&-
    ;;
merged)
    "$@" 2>&1 9>&-
    ;;
files)
    find . -path "$pattern" -type f -exec rm -f -- {} +
    "$@" 9>&-
    code=$?
    find . -path "$pattern" -type f -exec \
        sh -c 'for file; do printf "\036%s\n" "$file"; cat -- "$file"; printf "\n"; done' sh {} + >&9
    exit $code
    ;;
*)
    echo "patchshot_collect.sh: unknown mode $mode" >&2
    exit 2
    ;;
esac
