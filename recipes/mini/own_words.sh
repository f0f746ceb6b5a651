#!/usr/bin/env bash
# MARS6 of mini learns words, sounds and the rise of questions from its own takes, by policy gradient; begins with weights that read
# letters, and with those that phones.sh trained from them to read letters with phones. About 3 hours of two cores. It resumes.
# Usage: recipes/mini/own_words.sh WORK_FOLDER NAMES [RECOGNIZER] [KEPT]     (WORK_FOLDER: that of phones.sh, with its corpora and its
# bundle; NAMES: the folder of the package `names`; RECOGNIZER: a size or folder of faster-whisper, another one than the judges'; KEPT:
# a file of texts, one a line, that are kept for tests)
#
# PARENT: folder of the bundle of letters that phones.sh began with (the packaged mini; its own weights began with mini@409156f0852c).
# `provenance` in bundle.json says what differed. The mark of rises learnt after stages 3 and 4 (own_marks.sh).
#
#   pip install '.[train,eval]' swift-f0 pyworld distillmos
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
usage="usage: recipes/mini/own_words.sh WORK_FOLDER NAMES [RECOGNIZER] [KEPT]"
work=${1:?$usage} names=${2:?$usage} recognizer=${3:-tiny.en} kept=${4:-} parent=${PARENT:-$here/../../src/marstts/models_data/mini}
takes=$work/own_words
cores=$(nproc)  # before the next line, which nproc would obey
export OMP_NUM_THREADS=1
mkdir -p "$takes"
marstts doctor --extra train --folder "$work" --free-gb 1

learn() {  # PARENT OUTPUT CONFIGURATION
    torchrun --nproc-per-node "$cores" "$here/policy_gradient.py" "$1" "$work/people/utterances.jsonl" "$2" \
        --names "$names" --recognizer "$recognizer" --config "$here/$3" ${kept:+--without "$kept"}
}

echo "1. Words, by the model of letters."
learn "$parent" "$takes/letters" policy_gradient.toml
[ -e "$takes/letters_mini" ] ||
    marstts export "$takes/letters" --template "$parent" --phones contours --name mini --output "$takes/letters_mini"

echo "2. What it has changed, in the model of letters with phones."
[ -e "$takes/graphones_mini" ] ||
    python "$here/add_difference.py" "$work/mini" "$parent" "$takes/letters_mini" "$takes/graphones_mini"

echo "3. Words, sounds and questions, by that model."
learn "$takes/graphones_mini" "$takes/graphones" policy_gradient_graphones.toml
[ -e "$takes/words_mini" ] ||
    marstts export "$takes/graphones" --template "$takes/graphones_mini" --phones graphones --name mini --output "$takes/words_mini"

echo "4. The same, and the noun and verb of heteronyms."
learn "$takes/words_mini" "$takes/heteronyms" policy_gradient_heteronyms.toml

echo "5. The bundle."
marstts export "$takes/heteronyms" --template "$takes/words_mini" --phones graphones --name mini --output "$takes/mini"
