#!/usr/bin/env bash
# mini's takes get the median F0 of the person whose voice they have, by its codec alone: the codes of a take stay. About an hour of a
# core.
# Usage: recipes/mini/f0_of_people.sh WORK_FOLDER CAMPLUS     (WORK_FOLDER: that of own_marks.sh, with its corpora and its run; CAMPLUS:
# the folder that campplus.py has written)
# The packaged codec was not made by it: the median F0 of takes is 1.1 instead of 2.2 semitones off, but only half as many questions rise.
#
# PARENT: folder of the bundle whose codec is trained, one without a median F0 (default: that of own_marks.sh).
#
#   pip install '.[train,synthetic]' swift-f0
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
usage="usage: recipes/mini/f0_of_people.sh WORK_FOLDER CAMPLUS"
work=${1:?$usage} campplus=${2:?$usage} parent=${PARENT:-$1/own_marks/mini}
out=$work/f0_of_people
cores=$(nproc)
export OMP_NUM_THREADS=1
mkdir -p "$out"
marstts doctor --extra train --folder "$work" --free-gb 1

echo "1. F0 of the recordings, and takes in their voices."
[ -e "$out/f0.jsonl" ] || python "$here/f0_by_swift.py" "$work/people/utterances.jsonl" "$out/f0.jsonl"
marstts preference mine "$parent" --references "$work/people/utterances.jsonl" --texts "$here/text/modern.tsv.gz" \
    --output "$out/takes" --config "$here/mine_f0.toml" --workers "$cores"

echo "2. The median F0 in timbre embeddings."
[ -e "$out/median/part_provenance.json" ] ||
    python "$here/median_f0.py" "$parent/codec" "$campplus" "$out/median" --recordings "$work/people/utterances.jsonl" \
        --f0 "$out/f0.jsonl" --steps 1200

echo "3. The pitch predictor."
[ -e "$out/codec/part_provenance.json" ] ||
    python "$here/pitch.py" "$out/median" "$campplus" "$out/codec" --takes "$out/takes" \
        --recordings "$work/people/utterances.jsonl" --f0 "$out/f0.jsonl" --most-takes 300 --most-recordings 700 --steps 1200

echo "4. The bundle."
marstts export "$work/own_marks/run" --template "$parent" --codec "$out/codec" --name mini --output "$out/mini"
