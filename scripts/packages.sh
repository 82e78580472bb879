# Sourced by the scripts that need packages of the operating system. Packages are installed only by root and with
# apt-get, and each is named before; nothing else of the machine is changed.

say() { echo "$(basename "$0"): $*" >&2; }

# Installs Debian packages. Returns 1, having changed nothing, without root or apt-get.
install_packages() {
    [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null || return 1
    say "installing with apt-get, as root: $*"
    apt-get update -q </dev/null >&2 || say "not every package list could be brought up to date; going on"
    DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$@" </dev/null >&2
}

# Whether Spark can run: palisade/pipeline/java.py decides in the same way.
java_fits() {
    local java=java
    [ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
    "$java" -version 2>&1 | grep -E 'version "(17|21)[.\"-]' >/dev/null
}

# Java for the tests of the pipeline. Without it, these are skipped; with CI set, they fail.
prepare_java() {
    java_fits && return
    if [ -n "${JAVA_HOME:-}" ]; then
        say "JAVA_HOME=$JAVA_HOME has no Java 17 or 21, so Java is not installed: correct or unset it"
    else
        { install_packages openjdk-17-jre-headless || install_packages openjdk-21-jre-headless; } && java_fits && return
    fi
    local outcome=SKIPPED
    [ -z "${CI:-}" ] || outcome="GOING TO FAIL"
    say "****  SPARK CANNOT RUN HERE: THE TESTS OF THE PIPELINE ARE $outcome  ****"
    say "They need Java 17 or 21. On Debian and its kin, as root: apt-get install openjdk-17-jre-headless"
}
