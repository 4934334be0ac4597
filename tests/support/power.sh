#!/bin/sh
# Management controllers of machines, as files: power.sh DIRECTORY on|off|status MACHINE.
# DIRECTORY/deny: every change is refused. DIRECTORY/fail: the next change fails. DIRECTORY/lose: the next change is
# made, but nobody hears of it.
directory=$1 word=$2 machine=$3
if [ "$word" = status ]; then
    read -r power < "$directory/$machine" || exit 1
    echo "Chassis Power is $power"
    exit 0
fi
if [ -e "$directory/deny" ]; then echo "not allowed to switch $machine"; exit 77; fi
if [ -e "$directory/fail" ]; then rm "$directory/fail"; echo "controller of $machine is busy"; exit 75; fi
echo "$word" > "$directory/$machine"
if [ -e "$directory/lose" ]; then rm "$directory/lose"; exec sleep 60; fi
echo "switched $machine $word"
