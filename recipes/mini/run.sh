#!/usr/bin/env bash
# All stages of mini. An interrupted run resumes.
# Usage: recipes/mini/run.sh WORK_FOLDER [PEOPLE_FOLDER]     (about 5 hours on two cores; with PEOPLE_FOLDER 10)
# Step 2 is sized for a GPU: DEVICE=cuda; the hours do not count it.
#
#   apt-get install espeak-ng flite rhvoice rhvoice-english libttspico-utils    (the last three are in Debian's non-free)
#   pip install '.[train,synthetic,eval]'
#
# PEOPLE_FOLDER holds utterances.tsv and its recordings (people.tsv.gz lists them with sources; docs/data/corpora.md). With it,
# the codec is trained on people, too, and its decoder further (steps 5 to 8), which needs Kokoro's packages (docs/data/corpora.md).
#
# Variables: PHONE_STEPS of the phone recognizer's training (3000); LIMIT trials of the evaluation (all 56); METRICS of the evaluation (default); DEVICE of the codec's training (cpu);
# WHISPER: folder of a Whisper tiny.en in CTranslate2's format, such as Systran/faster-whisper-tiny.en; CAMPLUS: the published
# weights of CAM++ (campplus.py), by which step 7 tells the decoder who speaks, and trains it further; step 8 needs it, too.
#
# What it makes reads letters; phones.sh teaches it to read phones.
# It does not repeat how the packaged weights came about: codec, identity encoder and MARS6 began with weights of earlier,
# smaller corpora and former codes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:?usage: recipes/mini/run.sh WORK_FOLDER [PEOPLE_FOLDER]}
people=${2:-}
whisper=${WHISPER:-whisper-tiny.en}
cores=$(nproc)  # before the next line, which nproc would obey
export OMP_NUM_THREADS=1
if [ ! -d "$whisper" ]; then
    echo "$whisper: no such folder; name that of a Whisper tiny.en in CTranslate2's format in WHISPER" >&2
    exit 2
fi

mkdir -p "$work/recipes"
for config in "$here"/codec*.toml; do
    sed -e "s|\"IDENTITY|\"$work/export/identity|; s|\"CAMPLUS|\"$work/export/campplus|" \
        -e "s|\"TAKES|\"$work/takes|g; s|\"WHISPER|\"$whisper|" \
        -e "s|\"FORMER|\"$work/codec_adversarial|; s|\"PREDICTED_WIDE|\"$work/predicted_wide|; s|\"PREDICTED\"|\"$work/predicted\"|" "$config" > "$work/recipes/$(basename "$config")"
done
train_codec() {  # STAGE OPTIONS; RUN: the run folder that it goes on with, else one of its own
    marstts train codec --config "$work/recipes/$1.toml" --output "$work/${RUN:-$1}" --device "${DEVICE:-cpu}" "${@:2}"
}

echo "1. The corpora."
marstts prepare synthetic --config "$here/synthetic.toml" --output "$work/synthetic" --workers "$cores" \
    --sentences "$here/text/english.txt.gz:0.2" --sentences "$here/text/modern.tsv.gz:0.72" \
    --sentences "$here/text/short.tsv.gz:0.08"
manifest=$work/synthetic/utterances.jsonl
marstts prepare f0 "$manifest" --hours 8 --workers "$cores"
both=(--data "$manifest")
if [ -n "$people" ]; then
    marstts prepare people --root "$people" --output "$work/people" --exclude ljspeech --audio flac
    marstts prepare f0 "$work/people/utterances.jsonl" --workers "$cores"
    both=(--data "$work/people/utterances.jsonl:0.6" --data "$manifest:0.4")
fi

echo "2. The codec."
train_codec codec --data "$manifest"
train_codec codec_words --init-from "$work/codec" "${both[@]}"
train_codec codec_decoder --init-from "$work/codec_words" --data "$manifest" --export "$work/export/codec" \
    --name mini-codec-4

echo "3. The speaker encoders."
marstts train speaker --config "$here/identity.toml" --data "$manifest" --output "$work/identity" \
    --export "$work/export/identity"
marstts train speaker --config "$here/style.toml" --data "$manifest" --output "$work/style" \
    --export "$work/export/style"

echo "4. MARS6, and its guidance. One process per core; drop torchrun to train in a single process."
marstts tokenize "$manifest" --output "$work/shards" --workers "$cores" \
    --codec "$work/export/codec" --identity "$work/export/identity" --style "$work/export/style"
torchrun --nproc-per-node "$cores" --no-python marstts train mars6 --config "$here/mars6.toml" \
    --data "$work/shards" --output "$work/mars6"
torchrun --nproc-per-node "$cores" --no-python marstts train mars6 --config "$here/mars6_guidance.toml" \
    --data "$work/shards" --init-from "$work/mars6" --output "$work/mars6_guidance"

bundle() {  # CODEC OUTPUT
    marstts export "$work/mars6_guidance" --codec "$1" --identity "$work/export/identity" \
        --style "$work/export/style" --name mini --spelling simple --output "$2"
}

if [ -z "$people" ]; then
    bundle "$work/export/codec" "$work/mini"
else
    echo "5. The codec's decoder on people."
    train_codec codec_people --init-from "$work/codec_decoder" "${both[@]}"

    echo "6. The same on codes that the model generates."
    bundle "$work/export/codec" "$work/mini_synthetic"
    for corpus in people synthetic; do
        marstts preference mine "$work/mini_synthetic" --references "$work/$corpus/utterances.jsonl" \
            --texts "$here/text/modern.tsv.gz" --output "$work/takes/$corpus" --config "$here/mine_$corpus.toml" \
            --workers "$cores"
    done
    train_codec codec_generated --init-from "$work/codec_people" "${both[@]}"

    echo "7. The same against discriminators."
    marstts prepare synthetic --config "$here/synthetic_kokoro.toml" --output "$work/kokoro" --workers "$cores" \
        --sentences "$here/text/modern.tsv.gz"
    marstts prepare f0 "$work/kokoro/utterances.jsonl" --workers "$cores"
    natural=(--data "$work/people/utterances.jsonl:0.92" --data "$work/kokoro/utterances.jsonl:0.08")
    last=(--export "$work/export/codec_people" --name mini-codec-4)
    if [ -z "${CAMPLUS:-}" ]; then
        train_codec codec_adversarial --init-from "$work/codec_generated" "${natural[@]}" "${last[@]}"
    else
        python "$here/campplus.py" "$CAMPLUS" "$work/export/campplus"
        train_codec codec_adversarial --init-from "$work/codec_generated" "${natural[@]}"
        train_codec codec_likeness --init-from "$work/codec_adversarial" "${natural[@]}" "${last[@]}"
    fi
    codec=$work/export/codec_people

    if [ -n "${CAMPLUS:-}" ]; then
        echo "8. The same on codes that MARS6 predicts for recordings, then on those of a wider nucleus."
        marstts tokenize "$work/people/utterances.jsonl" --output "$work/people_shards" --workers "$cores" \
            --codec "$work/export/codec_people" --identity "$work/export/identity" --style "$work/export/style"
        bundle "$codec" "$work/mini"
        python "$here/predicted_codes.py" "$work/mini" "$work/people_shards" "$work/predicted"
        python "$here/predicted_codes.py" "$work/mini" "$work/people_shards" "$work/predicted_wide" --top-p 0.8 --seed 1
        last=(--init-from "$work/export/codec_people" --data "$work/people/utterances.jsonl")
        train_codec codec_predicted "${last[@]}"
        RUN=codec_predicted train_codec codec_predicted_wide "${last[@]}" \
            --export "$work/export/codec_predicted" --name mini-codec-4
        codec=$work/export/codec_predicted
    fi

    echo "9. The phone recognizer by which takes are checked."
    python "$here/phone_recognizer.py" "$codec" "$work/phones" "$work/people/utterances.jsonl" \
        "$work/kokoro/utterances.jsonl" --steps "${PHONE_STEPS:-3000}"
    bundle "$codec" "$work/mini"
fi

echo "10. Scores."
marstts evaluate --system "$work/mini" --root "$work/synthetic" --output "$work/evaluation" --workers "$cores" \
    --metrics "${METRICS:-default}" ${LIMIT:+--limit "$LIMIT"}
