# Sourced by the scripts that need the virtual environment: makes .venv, and installs the distribution in it
# (editable, so that the tree is what runs). Installs again when setup.cfg or pyproject.toml has changed.
#
#     prepare_environment demo        # or: test

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
# Some images set it. Without byte code on disk each of hundreds of processes compiles the program: a second of CPU.
unset PYTHONDONTWRITEBYTECODE
. scripts/packages.sh

find_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.11 python3.12 python3.13; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    say "Python 3.11 or newer is needed; on Debian: apt-get install python3"
    return 1
}

install_venv_module() {
    local python=$1 package
    package="python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
    say "Python cannot make virtual environments here: its module for that is missing."
    install_packages "$package" && return
    say "On Debian and its kin, type this as root (or after 'sudo'), then start again:"
    say "    apt-get install $package"
    return 1
}

make_venv() {
    local python
    python=$(find_python) || return 1
    "$python" -c 'import ensurepip, venv' 2>/dev/null || install_venv_module "$python" || return 1
    say "making .venv"
    rm -rf .venv
    "$python" -m venv .venv
}

# uv needs a third of pip's time. It does not read pip's configuration, so where that names another index, pip installs.
install_with_uv() {
    [[ $(.venv/bin/python -m pip config list) != *index-url=* ]] || return 1
    .venv/bin/python -m pip install --quiet "$(grep '^uv==' scripts/constraints.txt)" </dev/null >&2 &&
        .venv/bin/uv pip install --quiet --python .venv/bin/python --constraint scripts/constraints.txt \
            --editable ".[$1]" </dev/null >&2 && return
    say "uv could not install; trying pip"
    return 1
}

install_with_pip() {
    .venv/bin/python -m pip install --quiet --use-pep517 --constraint scripts/constraints.txt --editable ".[$1]" </dev/null >&2
}

prepare_environment() {
    local extra=$1 wanted stamp
    [ -x .venv/bin/python ] && .venv/bin/python -c 'import pip' 2>/dev/null || make_venv || return 1
    wanted="$(cat setup.cfg pyproject.toml scripts/constraints.txt | cksum) $PWD"
    stamp=.venv/installed-$extra
    [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && return
    say "installing palisade[$extra] in .venv (the first time, about a minute)"
    install_with_uv "$extra" || install_with_pip "$extra" || {
        say "pip could not install; the lines above say why (no network?)"
        return 1
    }
    echo "$wanted" >"$stamp"
}
