
# Transactions, by `txos complete`; everything else by the function above.
_txos_or_transaction() {
    local words=("${COMP_WORDS[@]:1:COMP_CWORD}") found line
    local last=$((${#words[@]} - 1))
    # As bash will read it: without what quotes it.
    ((last < 0)) || words[last]=${words[last]#[\'\"]} words[last]=${words[last]//\\/}
    if ! found=$(txos complete -- "${words[@]}" 2>/dev/null); then
        _txos "$@"
        return
    fi
    COMPREPLY=()
    [[ $found ]] || { compopt +o default +o bashdefault; return; }
    local candidates=() descriptions=() longest=0 word i
    while IFS=$'\t' read -r word line; do
        printf -v word %q "$word"
        candidates+=("$word") descriptions+=("$line")
        ((${#word} <= longest)) || longest=${#word}
    done <<<"$found"
    # One is typed in; of several, bash types what they begin with, and shows what each stands for.
    if ((${#candidates[@]} == 1 || COMP_TYPE == 37 || COMP_TYPE == 42)); then
        COMPREPLY=("${candidates[@]}")
        return
    fi
    local columns=${COLUMNS:-80}
    for i in "${!candidates[@]}"; do
        printf -v line '%-*s  (%s' "$longest" "${candidates[i]}" "${descriptions[i]}"
        line="${line:0:columns - 2})"
        # More than half of the width, so that there is one on each line.
        printf -v line '%-*s' "$((columns / 2))" "$line"
        COMPREPLY+=("$line")
    done
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _txos_or_transaction -o nosort -o bashdefault -o default txos
else
    complete -F _txos_or_transaction -o bashdefault -o default txos
fi
