: agent of the lab
root=$0 become=$1 config=$2 hosts=$3
shift 3
mkdir -p "$root" || exit 1
[ ! -O "$root" ] || chmod 755 "$root"
[ ! -w /etc/hosts ] || grep -q '^# nodes of the lab' /etc/hosts || echo "$hosts" >>/etc/hosts
echo >&2
while sleep 2 </dev/null >/dev/null 2>&1; do echo >&2; done &
beat=$!
for python do
  command -v "$python" >"$root/python" || continue
  "$python" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))' </dev/null || continue
  sh -c 'echo $$ >"$0/first"; "$1" -c "$2" "$3"; exit $?' "$root" "$python" "$become" "$config"
  code=$?
  kill $beat
  [ $code != 0 ] || kill -TERM 1
  exit $code
done
kill $beat
exec 3<&0
cat <&3 >/dev/null & # kubectl does not end while its input waits
sleep 1
kill $!
echo "none of $* can import torch" >&2
exit 71
