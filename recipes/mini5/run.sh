#!/usr/bin/env bash
# All stages of mini5, a small MARS5 over the packaged model's codec. An interrupted run resumes.
# docs/models/mars5.md says how far it was trained.
#
#   apt-get install flite espeak-ng
#   pip install 'marstts[train,synthetic]'
#   recipes/mini5/run.sh runs/mini5
set -euo pipefail
output=${1:?usage: recipes/mini5/run.sh OUTPUT}
recipe=$(cd "$(dirname "$0")" && pwd)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
packaged=$(python -c 'from marstts.codec.frame_codec import PACKAGED_CODEC; print(PACKAGED_CODEC)')

echo "1. Corpus: synthetic speech of eight voices and their variants."
marstts prepare synthetic --config "$recipe/synthetic.toml" \
    --sentences "$recipe/../mini/text/modern.tsv.gz" --output "$output/corpus" --workers 2
manifest=$output/corpus/utterances.jsonl

echo "2. The codec: eight levels at 23.4 Hz, the codes of the packaged codec by frame, and one that follows the phones."
marstts prepare phone-alignments "$manifest" --output "$output/phones.jsonl" --hours 3
marstts tokenize "$manifest" --output "$output/base-shards" --codec "$packaged" --identity toy:8 --style toy:8
python "$recipe/codec.py" "$output/base-shards" "$output/phones.jsonl" "$output/codec"
marstts tokenize "$manifest" --output "$output/shards" --codec "$output/codec" --identity toy:8 --style toy:8

echo "3. The AR with both tokenizers, then the NAR with the same."
marstts train mars5-ar --config "$recipe/ar.toml" --data "$output/shards" --output "$output/runs/ar"
marstts train mars5-nar --config "$recipe/nar.toml" --data "$output/shards" --output "$output/runs/nar" \
    --tokenizers-from "$output/runs/ar"

echo "4. A bundle with int8 graphs."
marstts export "$output/runs/ar" --nar "$output/runs/nar" --codec "$output/codec" \
    --settings "$recipe/settings.toml" --name mini5 --output "$output/mini5-full"
marstts quantize "$output/mini5-full" --output "$output/mini5"
marstts speak "The ship left the harbor at dawn." --model "$output/mini5" --output "$output/speech.wav"
