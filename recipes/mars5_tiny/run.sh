#!/usr/bin/env bash
# All stages of a MARS5 in minutes: from sentences to speech that babbles. A smoke test of the training commands.
# An interrupted run resumes.
#
#   apt-get install flite espeak-ng
#   pip install '.[train,synthetic]'
#   recipes/mars5_tiny/run.sh runs/mars5_tiny
set -euo pipefail
output=${1:?usage: recipes/mars5_tiny/run.sh OUTPUT}
recipe=$(cd "$(dirname "$0")" && pwd)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

echo "1. Corpus: that of tiny, eight synthetic speakers, four minutes."
marstts prepare synthetic --config "$recipe/../tiny/synthetic.toml" \
    --sentences "$recipe/../mini/text/modern.tsv.gz" --output "$output/corpus" --workers 2
manifest=$output/corpus/utterances.jsonl

echo "2. A codec with one rate on all levels."
marstts prepare f0 "$manifest" --workers 2
marstts train codec --config "$recipe/codec.toml" --data "$manifest" --output "$output/runs/codec" \
    --export "$output/codec" --name mars5-tiny-codec

echo "3. Shards. The speaker encoders of MARS5 are trained with it; those of the shards are not read."
marstts tokenize "$manifest" --output "$output/shards" --codec "$output/codec" --identity toy:8 --style toy:8

echo "4. The AR with both tokenizers, then the NAR with the same."
marstts train mars5-ar --config "$recipe/ar.toml" --data "$output/shards" --output "$output/runs/ar"
marstts train mars5-nar --config "$recipe/nar.toml" --data "$output/shards" --output "$output/runs/nar" \
    --tokenizers-from "$output/runs/ar"

echo "5. A bundle, which clones the voice of a held-out speaker."
marstts export "$output/runs/ar" --nar "$output/runs/nar" --codec "$output/codec" --timesteps 24 \
    --name mars5-tiny --output "$output/mars5-tiny"
marstts speak "The ship left the harbor at dawn." --model "$output/mars5-tiny" --output "$output/speech.wav" \
    --reference "$output/corpus/audio/flite-kal16.2/flite-kal16.2-test-000000.flac"
