#!/usr/bin/env bash
# What people do by hand: a network, three containers of the image, the script in each with its rank, wait, logs, remove.
# Usage: docker_loop.sh IMAGE SCRIPT
set -euo pipefail
image=$1 script=$2 name=loop-$$

docker network create "$name" >/dev/null
for rank in 0 1 2; do
  docker run -d --name "$name-$rank" --hostname "node$rank" --network "$name" --network-alias "node$rank" \
    -v "$(dirname "$script"):/work:ro" -w /work \
    -e RANK="$rank" -e WORLD_SIZE=3 -e MASTER_ADDR=node0 -e MASTER_PORT=29500 \
    "$image" python3 "$(basename "$script")" >/dev/null
done
status=0
for rank in 0 1 2; do
  code=$(docker wait "$name-$rank")
  [ "$code" = 0 ] || status=1
done
for rank in 0 1 2; do docker logs "$name-$rank"; done
docker rm -f "$name-0" "$name-1" "$name-2" >/dev/null
docker network rm "$name" >/dev/null
exit $status
