#!/usr/bin/env bash
# Makes the guest that Linux rxe runs in: a kernel, an initial RAM disk, and headers and libraries to
# compile verbs programs against. From the packages of this machine's own Debian mirrors; nothing is
# installed here.
#
#     build-guest.sh FOLDER
#
# FOLDER: vmlinuz, initrd, root (the guest's files), include, and key, which says what they were
# made from: with the same key nothing is made again. Needs root, for apt and for file owners.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$1
root=$folder/root
# Services that Debian does not start by itself are not needed.
packages=(
  busybox-static dash iproute2 kmod nftables tcpdump ndctl
  ibverbs-providers ibverbs-utils rdmacm-utils perftest
  libibverbs-dev librdmacm-dev librpma-dev
  nvme-cli e2fsprogs
)
unwanted='^(perl|libperl|udev_|dpkg_|passwd_|debconf_|adduser_|pci\.ids|lib(sqlite3|krb5|db5))'
modules=(
  virtio_net 9p 9pnet_virtio crc32_generic rdma_rxe ib_uverbs rdma_ucm ib_umad
  rds rds_rdma nf_tables nft_numgen nft_limit nfit nd_pmem device_dax dax_pmem
  virtio_blk ext4 crc32c_generic nvme_rdma nvmet nvmet_rdma
)

fail() {
  echo "build-guest: $*" >&2
  exit 1
}

# apt says where its mirrors are: that stays in a file.
quiet_apt() {
  DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=120 \
    -o APT::Sandbox::User=root -o Acquire::Retries=3 "$@" >>"$folder/apt.log" 2>&1 </dev/null ||
    fail "apt-get ${*: -2} failed: see $folder/apt.log"
}

# With FLUSH and ATOMIC WRITE: 6.2 or later.
kernel_package() {
  local name found
  for name in linux-image-6.12-amd64 linux-image-amd64; do
    found=$(apt-cache depends "$name" 2>/dev/null | awk '$1 == "Depends:" { print $2; exit }')
    [ -z "$found" ] || { echo "$found"; return; }
  done
  fail 'there is no package linux-image-amd64 here: the guest is made of Debian packages'
}

fetch() {
  mkdir -p "$folder/debs/partial" "$folder/kernel"
  : >"$folder/nothing-installed"
  # Where nothing is installed, apt fetches all that is needed.
  quiet_apt -o Dir::State::status="$folder/nothing-installed" \
    -o Dir::Cache::archives="$folder/debs" -o Debug::NoLocking=1 \
    --no-install-recommends --download-only install "${packages[@]}"
  (cd "$folder/kernel" && quiet_apt download "$kernel")
}

unpack() {
  local deb applet
  mkdir -p "$root"/usr/{bin,sbin,lib,lib64} \
    "$root"/{proc,sys,dev,tmp,run,etc,root,host,var/tmp}
  for deb in bin sbin lib lib64; do ln -s "usr/$deb" "$root/$deb"; done
  for deb in "$folder"/debs/*.deb; do
    [[ $(basename "$deb") =~ $unwanted ]] ||
      dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$root"
  done
  mv "$root/usr/include" "$folder/include"
  rm -rf "$root"/usr/share/{doc,man,locale,info,lintian,bash-completion,zoneinfo} \
    "$root"/usr/lib/systemd "$root"/usr/lib/*/{gconv,pkgconfig} "$root"/usr/lib/*/*.a
  # Rules of modprobe that load keys, which the guest lacks.
  grep -lsE '^install ' "$root"/{etc,usr/lib}/modprobe.d/*.conf | xargs -r rm -f
  for applet in $("$root/bin/busybox" --list); do
    [ -e "$root/usr/bin/$applet" ] || [ -e "$root/usr/sbin/$applet" ] ||
      ln -s busybox "$root/usr/bin/$applet"
  done
  echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
  echo 'root:x:0:' >"$root/etc/group"
  ldconfig -r "$root"
}

unpack_kernel() {
  local from=$folder/kernel/unpacked version module file
  dpkg -x "$folder"/kernel/*.deb "$from"
  version=$(basename "$from"/boot/vmlinuz-*)
  version=${version#vmlinuz-}
  cp "$from/boot/vmlinuz-$version" "$folder/vmlinuz"
  mkdir -p "$from/usr/lib"
  [ -e "$from/usr/lib/modules" ] || ln -s ../../lib/modules "$from/usr/lib/modules"
  depmod -b "$from" "$version" 2>/dev/null
  for module in "${modules[@]}"; do
    modprobe -d "$from" -S "$version" --show-depends "$module" 2>/dev/null |
      awk '$1 == "insmod" { print $2 }' || fail "$kernel has no module $module"
  done | sort -u | while read -r file; do
    file=$(realpath "$file")
    module=$root/usr/${file#"$from"/}
    mkdir -p "$(dirname "$module")"
    case $file in
      *.xz) xz -dc "$file" >"${module%.xz}" ;;
      *) cp "$file" "$module" ;;
    esac
  done
  cp "$from/lib/modules/$version"/modules.{builtin,builtin.modinfo,order} \
    "$root/usr/lib/modules/$version/"
  depmod -b "$root" "$version" 2>/dev/null
}

mkdir -p "$folder"
exec 9>"$folder/lock"
# Two that want it at once: the second finds it made.
flock -w 300 9 || fail 'another one has been making the guest for five minutes'
key=$(cat "$0" "$here"/guest/* | sha256sum | cut -d' ' -f1)
if [ "$(cat "$folder/key" 2>/dev/null)" = "$key" ]; then exit 0; fi
[ "$(id -u)" = 0 ] || fail 'making the guest needs root'
for tool in cpio:cpio xz:xz-utils modprobe:kmod dpkg-deb:dpkg; do
  command -v "${tool%:*}" >/dev/null || fail "${tool%:*} is missing: apt-get install ${tool#*:}"
done
rm -rf "$folder"/{key,root,include,debs,kernel,vmlinuz,initrd,apt.log}
compgen -G '/var/lib/apt/lists/*Packages*' >/dev/null || quiet_apt update
kernel=$(kernel_package)
fetch
unpack
unpack_kernel
install -m 755 "$here"/guest/init "$here"/guest/agent "$root/"
install -m 755 "$here"/guest/persistent-memory "$root/usr/bin/"
(cd "$root" && find . -print0 | cpio --null --quiet -o -H newc -R 0:0) >"$folder/initrd"
rm -rf "$folder"/{debs,kernel}
echo "$key" >"$folder/key"
