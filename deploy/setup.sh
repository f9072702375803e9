#!/bin/sh
# Makes or updates the work pools, the GPU limit and the deployments on the Prefect server at PREFECT_API_URL.
# May be run again at any time: after a new version, a changed schedule, a changed pool.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
: "${PAANO_FLEET_FILE:?set PAANO_FLEET_FILE to the path of the fleet file as the flow runs see it}"
case $PAANO_FLEET_FILE in
  /*) ;;
  *) echo "PAANO_FLEET_FILE=$PAANO_FLEET_FILE: give the whole path, flow runs begin in a folder of their own" >&2; exit 2 ;;
esac

# Prefect imports from the folder it is called in. In an empty one a project's own `flows` is never taken for ours.
empty=$(mktemp -d)
trap 'rm -rf "$empty"' EXIT
cd "$empty"
export PYTHONSAFEPATH=1

# Deployments carry the fleet's name, so that several fleets can share a Prefect server.
if [ -z "${PAANO_FLEET__NAME:-}" ]; then
  PAANO_FLEET__NAME=$(python -c 'import sys; from flows.settings.fleet_file import Settings as S; print(S.load(sys.argv[1]).fleet.name)' "$PAANO_FLEET_FILE")
fi
export PAANO_FLEET__NAME

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

# Messages that wait in quiet hours are sent at their end; a fleet without quiet hours has no such deployment.
if ! [ -r "$PAANO_FLEET_FILE" ]; then
  echo "$PAANO_FLEET_FILE cannot be read here: a deployment for the end of its quiet hours is neither made nor removed" >&2
  exit 0
fi
notify="notify/$PAANO_FLEET__NAME-notify"
quiet=$(python -c 'import sys; from flows.settings.fleet_file import Settings as S; from flows.messages.quiet import end_of_quiet; print(*(end_of_quiet(S.load(sys.argv[1])) or ()), sep="\n")' "$PAANO_FLEET_FILE")
if [ -n "$quiet" ]; then
  PAANO_QUIET_END=$(echo "$quiet" | head -n 1)
  PAANO_QUIET_ZONE=$(echo "$quiet" | tail -n 1)
  export PAANO_QUIET_END PAANO_QUIET_ZONE
  prefect --no-prompt deploy --all --prefect-file "$here/quiet.yaml"
elif prefect deployment inspect "$notify" >/dev/null 2>&1; then
  prefect --no-prompt deployment delete "$notify"
fi
