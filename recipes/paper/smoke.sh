#!/usr/bin/env bash
# The first 200 steps of the published model on two CPU cores: a smoke test of every stage, without audible results.
# The corpus is that of recipes/tiny. Codes and embeddings are those of toys in the sizes of SNAC, WavLM and CLAP.
#
#   apt-get install flite espeak-ng
#   pip install '.[train,synthetic]'
#   recipes/paper/smoke.sh WORK_FOLDER
#
# Variable: MINUTES after which training stops early (none; all steps take an hour).
set -euo pipefail
work=${1:?usage: recipes/paper/smoke.sh WORK_FOLDER}
here=$(cd "$(dirname "$0")" && pwd)

marstts prepare synthetic --config "$here/../tiny/synthetic.toml" --sentences "$here/../mini/text/modern.tsv.gz" \
    --output "$work/corpus" --workers 2
marstts tokenize "$work/corpus/utterances.jsonl" --output "$work/shards" \
    --codec toy:4096 --identity toy:512 --style toy:1024
marstts train mars6 --config "$here/mars6_smoke.toml" --data "$work/shards" --output "$work/mars6" \
    ${MINUTES:+--max-minutes "$MINUTES"}
