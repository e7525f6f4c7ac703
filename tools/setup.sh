# What ./demo and ./test share: packages, configuring, building. To be sourced; defines functions
# and `root`, the checkout's folder, and does nothing by itself. The caller's folder stays current.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=/usr/bin/python3  # Debian's: another python3 that comes first on PATH has no torch

say() { printf '==> %s\n' "$*"; }

give_up() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# Debian's release: 12, 13, or sid, which has no number.
debian_release() { (. /etc/os-release && echo "${VERSION_ID:-sid}"); }

# The names in the given sections of tools/packages.txt, as far as this release has them.
packages_of() {
  awk -v wanted=" $* " -v release="$(debian_release)" '
    /^\[/ { gsub(/[][]/, ""); on = index(wanted, " " $1 " "); next }
    { sub(/#.*/, ""); releases = "" }
    match($0, /\[.*\]/) { releases = " " substr($0, RSTART + 1, RLENGTH - 2) " " }
    on && NF && (releases == "" || index(releases, " " release " ")) { print $1 }' \
    "$root/tools/packages.txt"
}

# Those of the given packages that are not installed.
missing_of() {
  local installed package
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
  for package in "$@"; do
    grep -qxF "installed $package" <<<"$installed" || echo "$package"
  done
}

# Installs what is missing of the given sections. Needs no root when nothing is.
require_packages() {
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null || give_up \
    "this is not a Debian system: install the equivalents of tools/packages.txt yourself, then" \
    "build with 'cmake --preset release && cmake --build build'"
  local missing as_root=()
  mapfile -t missing < <(missing_of $(packages_of "$@"))
  [[ ${#missing[@]} -eq 0 ]] && return
  say "installing: ${missing[*]}"
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null || give_up \
      "these packages must be installed, which needs root or sudo: ${missing[*]}"
    as_root=(sudo)
  fi
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
    apt-get -qy -o DPkg::Lock::Timeout=300)
  "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "${missing[@]}" ||
    give_up "apt-get could not install these packages: ${missing[*]}"
}

folder_of_preset() { [[ $1 == release ]] && echo build || echo "build-$1"; }

# How many compilers may run at once: one for each core, but a unit that includes torch takes up to
# 2 GB of memory.
compile_jobs() {
  local cores kilobytes limit
  cores=$(nproc)
  kilobytes=$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || true)
  [[ $limit =~ ^[0-9]+$ && $((limit / 1024)) -lt $kilobytes ]] && kilobytes=$((limit / 1024))
  local fit=$((kilobytes / (2 << 20)))
  [[ $fit -lt 1 ]] && fit=1
  echo $((fit < cores ? fit : cores))
}

# configure <preset>: only where it was not done; ninja itself notices changed CMake files.
configure() {
  local ninja_file
  ninja_file="$root/$(folder_of_preset "$1")/build.ninja"
  [[ -f $ninja_file && ! $root/CMakePresets.json -nt $ninja_file ]] && return
  say "configuring ($1)"
  (cd "$root" && cmake --preset "$1" --log-level=WARNING) || give_up "configuring ($1) failed"
}

# Of ninja's lines "[ 37% 152/415] Building ...": on a terminal one line that counts up, elsewhere
# (a log, a pipe) a line for each tenth. What else ninja says, a compiler's errors above all, stays.
show_progress() {
  local line percent steps redrawn=no tenth=0
  while IFS= read -r line; do
    if [[ $line =~ ^'['\ *([0-9]+)%\ ([0-9]+)/([0-9]+)']' ]]; then
      percent=${BASH_REMATCH[1]} steps="${BASH_REMATCH[2]} of ${BASH_REMATCH[3]}"
      if [[ -t 1 ]]; then
        printf '\r    %3d %% (%s)' "$percent" "$steps" && redrawn=yes
      elif ((percent / 10 > tenth)); then
        tenth=$((percent / 10)) && printf '    %3d %% (%s)\n' "$percent" "$steps"
      fi
    elif [[ $line != "ninja: "@("Entering directory"|"no work to do")* ]]; then
      [[ $redrawn == no ]] || echo
      redrawn=no && printf '%s\n' "$line"
    fi
  done
  [[ $redrawn == no ]] || echo
}

# build <preset> [target...]
build() {
  local preset=$1
  shift
  configure "$preset"
  say "building ($preset)"
  (cd "$root" && NINJA_STATUS='[%p %f/%t] ' \
    ninja -C "$(folder_of_preset "$preset")" -j "$(compile_jobs)" "$@" 2>&1) | show_progress ||
    give_up "building ($preset) failed"
}
