#!/bin/sh
# Runs a command whose results do not come by themselves to the report of the sandbox.
#
#   patchshot_collect.sh stdout - COMMAND...        its standard output is the report
#   patchshot_collect.sh merged - COMMAND...        the output in one stream, errors where they fell
#   patchshot_collect.sh own - COMMAND...           it writes to the report itself
#   patchshot_collect.sh files PATTERN COMMAND...   the files that it wrote (find -path) are the
#                                                   report: each after a line with a record separator
#                                                   and its name. Files of that name that are there
#                                                   already are removed first.
#   patchshot_collect.sh each FILE COMMAND ARG...   a shell's COMMAND runs once for each ARG; after a
#                                                   line with ARG and the exit code comes FILE, or
#                                                   its output if it wrote none
#
# The exit code is the command's. The command does not learn where the report goes (but for `own`).
# PATCHSHOT_BUILD is run before; a line without a name has its exit code, and its output follows.
mode=$1 pattern=$2
shift 2
exec 9>>"${SANDBOX_REPORT:-/dev/null}"
own=$SANDBOX_REPORT
unset SANDBOX_REPORT

if [ -n "$PATCHSHOT_BUILD" ]; then
    output=$(sh -c "$PATCHSHOT_BUILD" 2>&1 9>&-)
    printf '\036\t%s\n%s\n' "$?" "$output" >&9
    unset PATCHSHOT_BUILD
fi

case $mode in
stdout)
    "$@" >&9 9>&-
    ;;
merged)
    "$@" 2>&1 9>&-
    ;;
own)
    printf '\036.\n' >&9
    SANDBOX_REPORT=$own "$@" 9>&-
    ;;
files)
    find . -path "$pattern" -type f -exec rm -f -- {} +
    "$@" 9>&-
    code=$?
    find . -path "$pattern" -type f -exec \
        sh -c 'for file; do printf "\036%s\n" "$file"; cat -- "$file"; printf "\n"; done' sh {} + >&9
    exit $code
    ;;
each)
    command=$1 worst=0
    shift
    for argument; do
        rm -f "$pattern"
        sh -c "$command \"\$1\"" sh "$argument" >.patchshot-output 9>&-
        code=$?
        [ $code = 0 ] || worst=$code
        printf '\036%s\t%s\n' "$argument" $code >&9
        if [ -s "$pattern" ]; then cat -- "$pattern"; else cat .patchshot-output; fi >&9
        printf '\n' >&9
        cat .patchshot-output
    done
    exit $worst
    ;;
*)
    echo "patchshot_collect.sh: unknown mode $mode" >&2
    exit 2
    ;;
esac
