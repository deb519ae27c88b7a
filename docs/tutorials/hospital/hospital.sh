#!/usr/bin/env bash
# From an Excel file of notes in two languages, with patients and several diagnoses a note, to a served model with a
# private evaluation, and to the next quarter's model.
# docs/tutorials/hospital.md tells it step by step. Run it in an empty folder.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
notes=(--x note --y diagnoses --read labels_separator=";" --groups patient)
quarter=(--mu 0.224)  # half of the mu of the account, so that four fit
encoder=${ENCODER:-minilm}  # reads English; e5-small reads both languages, once it is downloaded
port=${PORT:-8377}

echo "== 1. The records: made-up notes, and the public list of diagnoses"
python "$here/notes.py"

echo "== 2. Plan, by public guesses: what the numbers will be able to say"
dppl plan --method multilabel --n-classes 6 --n-records 1000 --n-persons 500 --n-test 150 --labels-each 2 \
  "${quarter[@]}"

echo "== 3. Look at them, for the owner's eyes alone; nothing is paid"
dppl check notes.xlsx "${notes[@]}" --classes diagnoses.txt --encoder "$encoder"
dppl check notes.xlsx "${notes[@]:2}" --classes diagnoses.txt --encoder columns:notes.toml

echo "== 4. Hold patients out, all notes of one on one side"
(umask 077; openssl rand -hex 32 > split.key)
dppl split notes.xlsx --test 0.3 --groups patient --key split.key --out train.csv test.csv

echo "== 5. An account for the patients, and a model"
dppl ledger create ledger.db notes --epsilon 2 --delta 1e-6 --unit person
dppl train train.csv "${notes[@]}" --classes diagnoses.txt --encoder "$encoder" --unusable stop "${quarter[@]}" \
  --ledger ledger.db notes/train --out notes.safetensors
dppl ledger show ledger.db

echo "== 6. How good it is, on the patients who were held out"
dppl evaluate notes.safetensors test.csv "${notes[@]}" "${quarter[@]}" \
  --ledger ledger.db notes/test --out evaluation.json

echo "== 7. The papers: the statement, computed again, and a page for the data protection officer"
dppl show notes.safetensors --results evaluation.json
dppl verify notes.safetensors --ledger ledger.db notes
dppl show notes.safetensors --for dpo --purpose "Suggest codes of diagnoses for new notes." --by "Ward 7" \
  --ledger ledger.db notes --results evaluation.json --out dpo.html

echo "== 8. Serve it, and ask for three notes"
dppl serve notes.safetensors --port "$port" 2> serve.log &
server=$!
trap 'kill "$server" 2> /dev/null || true' EXIT
curl --silent --retry 90 --retry-delay 1 --retry-all-errors "http://localhost:$port/health"
echo
curl --silent --fail "http://localhost:$port/predict" --header "Content-Type: application/json" --data '{"top": 3, "texts": [
  "Blood pressure 170 over 100, ramipril was raised.",
  "Wheezing at night. HbA1c is 8.4 %, metformin twice a day.",
  "Heartburn after meals, and low back pain since Monday."]}' | tee answers.json
echo
kill "$server"
wait "$server" || true
trap - EXIT

echo "== 9. The next quarter: all notes so far, from the last model, with the same key, account and parts"
dppl split notes-q2.xlsx --test 0.3 --groups patient --key split.key --out train-q2.csv test-q2.csv
dppl train train-q2.csv "${notes[@]}" --classes diagnoses.txt --encoder "$encoder" --unusable stop "${quarter[@]}" \
  --start notes.safetensors --ledger ledger.db notes/train --out notes-q2.safetensors
dppl verify notes-q2.safetensors --ledger ledger.db notes
dppl ledger show ledger.db

echo "== 10. More than is left is refused before anything is read"
dppl train train-q2.csv "${notes[@]}" --classes diagnoses.txt --encoder "$encoder" --mu 0.4 \
  --ledger ledger.db notes/train --out too-much.safetensors || echo "exit code $?"
