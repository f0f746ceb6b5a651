#!/usr/bin/env bash
# The evaluation of MARS6 as published (Sec. V), after preference.sh: EARS; Whisper, an x-vector and UTMOS; three baselines, the
# ablations, Figure 2, and a folder for the listening test. An interrupted run resumes. Rows of the model and its ablations speak as
# the paper says (--paper, docs/paper.md); the same rows with what marstts adds at synthesis are "with-additions" and follow them.
#
#   pip install '.[released,eval,eval-models]' ./listening_test
#   recipes/paper/evaluate.sh WORK_FOLDER [EARS_FOLDER]
#
# EARS_FOLDER holds p001 … p107 and transcripts.json, from github.com/facebookresearch/ears_dataset. Each baseline needs an
# environment with its package, since these do not fit one another; weights are downloaded under their own licenses:
#   python3.10 -m venv envs/xttsv2     && envs/xttsv2/bin/pip install coqui-tts        CPML, not for commercial use
#   python3.10 -m venv envs/styletts2  && envs/styletts2/bin/pip install styletts2     MIT; asks for the consent of speakers
#   python3.10 -m venv envs/metavoice  and the steps of github.com/metavoiceio/metavoice-src in it     Apache-2.0, GPU of 12 GB
#
# Variables:
#   ENVS       folder of these environments (envs);  BASELINES  names of them, or none ("xttsv2 styletts2 metavoice")
#   MODEL, UNTUNED  bundles (those of WORK_FOLDER; the untuned one only if it was tuned)
#   LIMIT      trials at most, spread over the styles (all 2,193);  WORKERS  processes that compute metrics (2)
#   METRICS    (paper);  TESTSET  (ears)
#
# results: WORK_FOLDER/evaluation/report/report.md has the rows and columns of Table I, with intervals, and Figure 2.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:?usage: recipes/paper/evaluate.sh WORK_FOLDER [EARS_FOLDER]}
ears=${2:-$work/corpora/ears}
tuned=$work/bundle-preference
[ -d "$tuned" ] && default=$tuned || default=$work/bundle
model=${MODEL:-$default}
[ "$model" = "$tuned" ] && before=$work/bundle || before=
untuned=${UNTUNED:-$before}
envs=${ENVS:-envs}
read -ra baselines <<< "${BASELINES-xttsv2 styletts2 metavoice}"
output=$work/evaluation
common=(--testset "${TESTSET:-ears}" --root "$ears" --metrics "${METRICS:-paper}" --workers "${WORKERS:-2}" ${LIMIT:+--limit "$LIMIT"})

missing=()
for name in "${baselines[@]}"; do
    [ -x "$envs/$name/bin/python" ] || missing+=("$envs/$name/bin/python")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "no such interpreter: ${missing[*]}; make the environments (see the head of $0), or name those you have in BASELINES" >&2
    exit 2
fi

echo "1. The model, shallow and deep, with recordings and resynthesis as upper bounds."
marstts evaluate --paper --system "$model" --system ground-truth --system codec-resynthesis --baselines "" "${common[@]}" \
    --output "$output/model"
marstts evaluate --system "with-additions=$model" --baselines "" "${common[@]}" --output "$output/additions"
folders=("$output/model" "$output/additions")

for name in "${baselines[@]}"; do
    echo "2. $name."
    "$envs/$name/bin/python" "$here/baseline.py" "$name" "$output/model/trials.jsonl" "$output/generated/$name"
    marstts evaluate --system "$output/generated/$name" --baselines "" \
        --metrics-model none "${common[@]}" --output "$output/$name"
    folders+=("$output/$name")
done

echo "3. Ablations, Table I and Figure 2."
marstts evaluate --paper --system "$model@no-ras" --system "$model@no-quality-prefix" ${untuned:+--system "$untuned"} \
    --clone shallow --baselines "" "${common[@]}" --output "$output/ablations"
marstts evaluate --system "with-additions=$model@no-ras" --system "with-additions=$model@no-quality-prefix" \
    ${untuned:+--system "untuned-with-additions=$untuned"} --clone shallow --baselines "" "${common[@]}" \
    --output "$output/ablations_additions"
marstts report "${folders[@]}" "$output/ablations" "$output/ablations_additions" --output "$output/report"

echo "4. The listening test: one folder with the takes of all systems."
mkdir -p "$output/listening"
{
    echo 'title = "How natural are these voices, and how similar?"'
    echo 'questions = ["naturalness", "similarity"]'
    echo "evaluation = \"$(cd "$output/model" && pwd)\""
    echo '[systems]'
    for folder in "${folders[@]}"; do
        for takes in "$folder"/takes/*/; do
            echo "\"$(basename "$takes")\" = \"$(cd "$takes" && pwd)\""
        done
    done
} > "$output/listening/test.toml"
echo "marstts-listening-test serve $output/listening/test.toml      # prints the address of the page; Ctrl-C ends it"
echo "marstts-listening-test analyze $output/listening/test.toml    # naturalness and similarity, with intervals"
