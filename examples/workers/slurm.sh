#!/bin/bash
# Eight GPUs of a Slurm cluster for a lab: sbatch --export=ALL,NIGHTJAR_URL=https://lab.example.org slurm.sh
# The token is an enroll token of role worker, so that each job gets a token of its own:
#   ./nightjar token issue cluster --role worker --enroll --uses 100 > ~/.nightjar-enroll && chmod 600 ~/.nightjar-enroll
#SBATCH --job-name=nightjar
#SBATCH --array=0-7
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=4
#SBATCH --time=08:00:00
# Ten minutes before its end the job is told, and finishes the run that it has begun.
#SBATCH --signal=TERM@600
set -euo pipefail

NIGHTJAR_TOKEN="$(cat "${NIGHTJAR_ENROLL_FILE:-$HOME/.nightjar-enroll}")"
export NIGHTJAR_TOKEN

# A data directory of its own: jobs of one user share their home, and two workers never share this one.
srun nightjar worker --url "$NIGHTJAR_URL" --repo "${PROJECT:-$HOME/project}" \
  --gpu "${CUDA_VISIBLE_DEVICES:-all}" --data "${TMPDIR:-/tmp}/nightjar-$SLURM_JOB_ID"
