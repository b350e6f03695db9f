: agent of the lab
trap : HUP INT TERM
root=$1 address=$2 look=$3 become=$4 config=$5
shift 5
rm -rf "$root"
mkdir -m 700 "$root" && echo $$ >"$root/first" || exit 1
for python do
  command -v "$python" >"$root/python" || continue
  interface=$("$python" -c "$look" "$address") || continue
  export GLOO_SOCKET_IFNAME="${GLOO_SOCKET_IFNAME-$interface}"
  [ "$GLOO_SOCKET_IFNAME" ] || unset GLOO_SOCKET_IFNAME
  "$python" -c "$become" "$config"
  code=$?
  cd /
  rm -rf "$root" 2>/dev/null || { chmod -R u+rwX "$root"; rm -rf "$root"; }
  [ $code != 0 ] || scancel --quiet "$SLURM_JOB_ID"
  exit $code
done
rm -rf "$root"
echo "none of $* on $(hostname) can import torch" >&2
exit 71
