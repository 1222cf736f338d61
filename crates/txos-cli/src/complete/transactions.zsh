# Transactions, by `txos complete`.
_txos_transactions() {
    local found line
    found="$(txos complete -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)" || return 1
    [[ -n $found ]] || return 0
    local -a transactions
    for line in "${(@f)found}"; do
        transactions+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    _describe -V -t transactions transaction transactions
    return 0
}
