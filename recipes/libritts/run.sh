#!/usr/bin/env bash
# Does BPE help, does flux loss with a small ε, does ORPO? The paper's model on LibriTTS (585 hours), one GPU, about a day.
# docs/training/libritts.md has costs, what the curves must show, and how to decide. An interrupted run resumes.
#
#   pip install '.[train,data,released,eval,eval-models]'
#   recipes/libritts/run.sh WORK_FOLDER [LIBRITTS_FOLDER]
#
# LIBRITTS_FOLDER holds train-clean-100 and the other parts (`marstts prepare libritts --help`). Variables:
#   ARMS      some of: mars6 mars6_seed mars6_bytes mars6_flux (all, in this order)
#   GPUS      processes that train, any number (all GPUs);  DEVICE  of tokenization (cuda);  WORKERS  that generate and score (16)
#   SPEAKERS, SENTENCES  of the test set (60, 600), of which a third as many validate the tuning
#   METRICS   (paper);  CODEC, IDENTITY, STYLE  (snac, wavlm, clap);  FREE_GB  that the disk must have (25)
# It begins with an estimate of one arm's hours and disk, and a check of weights (which are fetched), packages, GPU and disk, those of the metrics included.
set -euo pipefail
work=${1:?usage: recipes/libritts/run.sh WORK_FOLDER [LIBRITTS_FOLDER]}
root=${2:-$work/libritts}
here=$(cd "$(dirname "$0")" && pwd)
read -ra arms <<< "${ARMS:-mars6 mars6_seed mars6_bytes mars6_flux}"
parts=(--codec "${CODEC:-snac}" --identity "${IDENTITY:-wavlm}" --style "${STYLE:-clap}")
manifest=$work/manifest/utterances.jsonl
workers=${WORKERS:-16}
sentences=${SENTENCES:-600}
launch=(torchrun --standalone --nproc-per-node "${GPUS:-gpu}" --max-restarts 10 --no-python)

marstts estimate --config "$here/mars6.toml" --hours 585 --seconds 5.6 --corpus-rate 24000 ${GPUS:+--gpus "$GPUS"}
marstts doctor "${parts[@]}" --extra train --extra data --extra eval --device "${DEVICE:-cuda}" \
    --metrics "${METRICS:-paper}" --folder "$work" --free-gb "${FREE_GB:-25}"

echo "1. Corpus, shards, test set."
[ -f "$manifest" ] || marstts prepare libritts --root "$root" --output "$work/manifest"
marstts tokenize "$manifest" --output "$work/shards" "${parts[@]}" --device "${DEVICE:-cuda}"
[ -f "$work/testset.jsonl" ] || marstts evaluate testset "$manifest" --speakers "${SPEAKERS:-60}" \
    --sentences "$sentences" --output "$work/testset.jsonl"
[ -f "$work/validation.jsonl" ] || marstts evaluate testset "$manifest" --speakers "${SPEAKERS:-60}" \
    --sentences "$((sentences / 3))" --exclude "$work/testset.jsonl" --output "$work/validation.jsonl"

evaluate() {  # NAME: score its shallow clones
    marstts evaluate --system "$work/models/$1" --clone shallow --testset "$work/testset.jsonl" \
        --metrics "${METRICS:-paper}" --metrics-model none --baselines "$2" --output "$work/evaluation/$1" --workers 2
}

echo "2. The arms: each changes one thing."
for arm in "${arms[@]}"; do
    size=512
    [ "$arm" != mars6_bytes ] || size=264
    mkdir -p "$work/runs/$arm"
    [ -f "$work/runs/$arm/tokenizer.json" ] ||
        marstts train tokenizer "$manifest" --vocab-size "$size" --output "$work/runs/$arm/tokenizer.json"
    "${launch[@]}" marstts train mars6 --config "$here/$arm.toml" --data "$work/shards" --output "$work/runs/$arm"
    marstts export "$work/runs/$arm" "${parts[@]}" --name "$arm" --output "$work/models/$arm"
done

echo "3. ORPO on the first arm."
model=$work/models/${arms[0]}
stage=$work/preference
marstts preference mine "$model" --references "$manifest" --texts "$here/../mini/text/modern.tsv.gz" \
    --config "$here/mine.toml" --output "$stage/mined" --workers "$workers"
marstts preference pairs "$stage/mined" --config "$here/../paper/pairs.toml" --output "$stage/pairs.jsonl" \
    --workers "$workers"
"${launch[@]}" marstts preference train "$model" --pairs "$stage/pairs.jsonl" --held-out "$work/validation.jsonl" \
    --config "$here/preference.toml" --output "$stage/run"
marstts export "$stage/run" --template "$model" --name orpo --output "$work/models/orpo"

echo "4. Scores, and one table."
folders=()
for name in "${arms[@]}" orpo; do
    evaluate "$name" "$([ "$name" = "${arms[0]}" ] && echo ground-truth || true)"
    folders+=("$work/evaluation/$name")
done
marstts report "${folders[@]}" --output "$work/report"
