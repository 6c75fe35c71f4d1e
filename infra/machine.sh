#!/bin/sh
# machine.sh PROGRAM...: whether this machine has what every target needs, and these programs besides.
#
# Programs: chromium, tmux, qemu, cc. All that is missing is named at once, before anything is installed. As root on a
# Debian or Ubuntu the missing system packages are then installed in one call; elsewhere the one command to type is said.
# PYTHON names the interpreter. PATH decides what is there.
set -u
PYTHON=${PYTHON:-python3}
problems='' packages='' cure=''

lack() { # lack WHAT PACKAGE...: without a package there is none that would help, and nothing is installed
  problems="$problems  $1
"
  shift
  [ $# -gt 0 ] || cure=by-hand
  for package in "$@"; do
    case " $packages " in *" $package "*) ;; *) packages="$packages${packages:+ }$package" ;; esac
  done
}

version_of() { "$@" 2>/dev/null || echo 'not found'; }

# The node that the distribution offers, if it is new enough.
node_packages() {
  offered=$(apt-cache show nodejs 2>/dev/null | sed -n 's/^Version: \([0-9]*\).*/\1/p' | sort -n | tail -n 1)
  if [ "${offered:-0}" -ge 20 ]; then echo nodejs npm; fi
}

look() { # look PROGRAM...
  problems='' packages='' cure=''
  found=$(version_of "$PYTHON" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')
  if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    lack "Python 3.11 or newer ($PYTHON: $found). Name another one: make PYTHON=python3.12 ..."
  elif ! "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; then
    lack "Python's venv and ensurepip ($PYTHON $found has none)" python3-venv
  fi
  found=$(version_of node --version)
  if ! node -e 'process.exit(process.versions.node.split(".")[0] < 20 ? 1 : 0)' 2>/dev/null; then
    # shellcheck disable=SC2046 # one word a package
    lack "node 20 or newer, for the CDK CLI (node: $found). See https://nodejs.org/en/download" $(node_packages)
  elif ! command -v npm >/dev/null; then
    lack 'npm, for the CDK CLI (npm: not found)' npm
  fi
  command -v git >/dev/null || lack 'git (git: not found)' git
  for program in "$@"; do
    case $program in
      chromium) command -v chromium >/dev/null || command -v chromium-browser >/dev/null ||
        command -v google-chrome >/dev/null || lack 'Chromium, for tests of pages (chromium: not found)' chromium ;;
      tmux) command -v tmux >/dev/null || lack 'tmux, for tests in a terminal (tmux: not found)' tmux ;;
      qemu) command -v qemu-aarch64-static >/dev/null || command -v qemu-aarch64 >/dev/null ||
        lack 'QEMU, for tests of the kernel for arm64 (qemu-aarch64: not found)' qemu-user-static ;;
      cc) command -v cc >/dev/null || lack 'a C compiler, for tests of the kernel (cc: not found)' gcc libc6-dev ;;
      *) echo "machine.sh knows no program $program" >&2 && exit 2 ;;
    esac
  done
  [ -z "$problems" ]
}

look "$@" && exit
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  apt-get update -qq >"$log" 2>&1 # a fresh system does not know yet what its distribution offers
  look "$@"
  if [ -z "$cure" ]; then
    echo "Installing what this machine lacks (once): $packages" >&2
    # Another installation may hold dpkg's lock.
    # shellcheck disable=SC2086 # one word a package
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 \
      $packages >>"$log" 2>&1 || tail -n 20 "$log" >&2
    look "$@" && exit
  fi
fi
{
  printf 'This machine lacks:\n%s' "$problems"
  if [ -z "$packages" ]; then
    :
  elif command -v apt-get >/dev/null; then
    printf 'Install it, then repeat the command:\n  sudo apt-get install -y %s\n' "$packages"
  elif command -v brew >/dev/null; then
    printf 'Install it, then repeat the command:\n  brew install'
    for package in $packages; do
      case $package in nodejs) printf ' node' ;; qemu-user-static) printf ' qemu' ;; git | tmux | chromium) printf ' %s' "$package" ;; esac
    done
    echo
  else
    echo "Install it, then repeat the command."
  fi
} >&2
exit 1
