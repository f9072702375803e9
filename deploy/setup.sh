#!/bin/sh
# Makes or updates the work pools, the GPU limit and the deployments on the Prefect server at PREFECT_API_URL.
# May be run again at any time: after a new version, a changed schedule, a changed pool.
set -eu
here=$(dirname "$0")
: "${PAANO_FLEET_FILE:?set PAANO_FLEET_FILE to the path of the fleet file as the flow runs see it}"

for pool in cpu gpu; do
  if [ "${PAANO_POOL_TYPE:-process}" = kubernetes ]; then
    prefect --no-prompt work-pool create "$pool" --type kubernetes --overwrite \
      --base-job-template "$here/kubernetes/pools/$pool.json"
  else
    prefect --no-prompt work-pool create "$pool" --type process --overwrite
  fi
done

# Sensors trained at once on all GPUs together, where no Dask or Ray scheduler hands the GPUs out.
slots=${PAANO_GPU_SLOTS:-4}
if prefect gcl inspect paano-gpu >/dev/null 2>&1; then
  prefect gcl update paano-gpu --limit "$slots"
else
  prefect gcl create paano-gpu --limit "$slots"
fi

prefect --no-prompt deploy --all --prefect-file "$here/prefect.yaml"
