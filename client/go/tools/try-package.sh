#!/bin/sh
# Packs the module, and builds and runs the example with it as a user would: outside of the repository, with the
# archive from a proxy. `try-package.sh PYTHON`, in the module's folder.
set -eu
python=$1
module=$(pwd)
root=$(cd ../.. && pwd)
work=$(mktemp -d)
server=
finish() {
	exec 3>&- # the server ends with its standard input
	[ -z "$server" ] || wait "$server" || true
	chmod -R u+w "$work" && rm -rf "$work"
}
trap finish EXIT

version=v$(sed -n 's/^const Version = "\(.*\)"$/\1/p' version.go)
(cd tools && go run ./packmodule "$module" "$version" "$work/proxy")
mkdir "$work/user"
cp "$root/examples/client/go/main.go" "$work/user"
cd "$work/user"
# What the module needs is taken from where `make bootstrap` had it put, so that this asks no registry.
cache=$(go env GOMODCACHE)/cache/download
export GOPROXY="file://$work/proxy,file://$cache" GOSUMDB=off GOMODCACHE="$work/modules" GOFLAGS="$GOFLAGS -modcacherw"
go mod init example.com/user 2>/dev/null
go get "entracte.dev/go@$version"
go build -o program .

mkfifo "$work/stdin"
(cd "$root" && exec "$python" -m tests.sdk_server <"$work/stdin" >"$work/stdout") &
server=$!
exec 3>"$work/stdin"
tries=0
until address=$(head -n 1 "$work/stdout" 2>/dev/null) && [ -n "$address" ]; do
	tries=$((tries + 1))
	[ $tries -lt 300 ] || { echo "the server did not start within 30 s" >&2; exit 1; }
	sleep 0.1
done
timeout 60 ./program "$address" </dev/null | tee "$work/said"
grep -q 'are on their way to you' "$work/said"
echo "package: entracte.dev/go@$version was built, installed from its archive and used"
