#!/bin/sh
# A consumer that starts with its producer, and serializes after it.
#
#     ./after.sh NUMBER
#
# The producer writes the numbers up to NUMBER into the file "numbers", and is not done then; the consumer adds them
# up into the file "sum". It comes after the run that it names: when it looks at what that has changed, it waits for
# the commit. If the producer fails (NUMBER is none), there is neither file, and the consumer ends with 125.
txos run --name producer -- sh -c 'seq "$1" > numbers; made=$?; sleep 2; exit $made' sh "$1" &
until txos list | grep -q 'seq "$1"'; do sleep .02; done
txos run --after producer -- sh -c 'sleep 1; awk "{ sum += \$1 } END { print sum }" numbers > sum'
