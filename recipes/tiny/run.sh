#!/usr/bin/env bash
# The whole life of a model in minutes: from sentences to a voice that babbles. It is the smoke test of every command.
# Run it again and it goes on where it stopped.
#
#   apt-get install flite espeak-ng
#   pip install 'marstts[train,studio]'
#   recipes/tiny/run.sh runs/tiny
set -euo pipefail
output=${1:?usage: recipes/tiny/run.sh OUTPUT}
recipe=$(cd "$(dirname "$0")" && pwd)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

echo "1. A corpus: eight people speak four minutes, in seven styles."
marstts prepare studio --config "$recipe/studio.toml" --sentences "$recipe/../mini/text/modern.tsv.gz" \
    --output "$output/corpus" --workers 2
manifest=$output/corpus/utterances.jsonl

echo "2. A codec and two speaker encoders learn to listen to it."
marstts prepare pitch "$manifest" --workers 2
marstts train codec --config "$recipe/codec.toml" --data "$manifest" --output "$output/runs/codec" \
    --export "$output/codec" --name tiny-codec
for encoder in identity style; do
    marstts train speaker --config "$recipe/$encoder.toml" --data "$manifest" --output "$output/runs/$encoder" \
        --export "$output/$encoder"
done
ears=(--codec "$output/codec" --identity "$output/identity" --style "$output/style")

echo "3. They turn the recordings into tokens, and a MARS6 learns to foretell those."
marstts tokenize "$manifest" --output "$output/shards" "${ears[@]}"
marstts train mars6 --config "$recipe/mars6.toml" --data "$output/shards" --output "$output/runs/mars6"

echo "4. All of them become one folder, and someone it has never heard lends it a voice."
marstts export "$output/runs/mars6" "${ears[@]}" --name tiny --output "$output/tiny"
marstts speak "The ship left the harbour at dawn." --model "$output/tiny" --output "$output/speech.wav" \
    --reference "$output/corpus/audio/flite-kal16.2/flite-kal16.2-test-000000.flac"
