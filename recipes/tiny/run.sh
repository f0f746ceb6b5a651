#!/usr/bin/env bash
# All stages of a model in minutes: from sentences to speech that babbles. A smoke test of the training commands.
# An interrupted run resumes.
#
#   apt-get install flite espeak-ng
#   pip install '.[train,synthetic]'
#   recipes/tiny/run.sh runs/tiny
set -euo pipefail
output=${1:?usage: recipes/tiny/run.sh OUTPUT}
recipe=$(cd "$(dirname "$0")" && pwd)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

echo "1. Corpus: eight synthetic speakers, four minutes, seven styles."
marstts prepare synthetic --config "$recipe/synthetic.toml" --sentences "$recipe/../mini/text/modern.tsv.gz" \
    --output "$output/corpus" --workers 2
manifest=$output/corpus/utterances.jsonl

echo "2. Codec and speaker encoders."
marstts prepare f0 "$manifest" --workers 2
marstts train codec --config "$recipe/codec.toml" --data "$manifest" --output "$output/runs/codec" \
    --export "$output/codec" --name tiny-codec
for encoder in identity style; do
    marstts train speaker --config "$recipe/$encoder.toml" --data "$manifest" --output "$output/runs/$encoder" \
        --export "$output/$encoder"
done
parts=(--codec "$output/codec" --identity "$output/identity" --style "$output/style")

echo "3. Shards, and a MARS6 that is trained on them."
marstts tokenize "$manifest" --output "$output/shards" "${parts[@]}"
marstts train mars6 --config "$recipe/mars6.toml" --data "$output/shards" --output "$output/runs/mars6"

echo "4. A bundle, which clones the voice of a held-out speaker."
marstts export "$output/runs/mars6" "${parts[@]}" --name tiny --output "$output/tiny"
marstts speak "The ship left the harbor at dawn." --model "$output/tiny" --output "$output/speech.wav" \
    --reference "$output/corpus/audio/flite-kal16.2/flite-kal16.2-test-000000.flac"
