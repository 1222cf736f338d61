
# Transactions, by `txos complete`.
function __txos_wants_transaction
    set -l words (commandline -opc)
    set -g __txos_transactions (txos complete -- $words[2..-1] (commandline -ct) 2>/dev/null)
end
complete -c txos -n __txos_wants_transaction -f -k -a '$__txos_transactions'
