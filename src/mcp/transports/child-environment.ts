/**
 * The environment of a child: an allow-list of the gateway's own, plus what the configuration says. A child is
 * foreign code: it gets what `npx`, `uvx` and most programs need to run (home, path, locale, temporary folders,
 * proxies, certificate bundles, package indexes), and none of the keys and tokens the gateway was started with.
 */

export type Environment = Readonly<Record<string, string | undefined>>;

const ALLOWED = new Set([
  ...["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "PWD"],
  ...["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"],
  ...["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"],
  ...[
    "NVM_DIR",
    "NVM_BIN",
    "VOLTA_HOME",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
    "PYTHONIOENCODING",
  ],
  ...[
    "APPDATA",
    "LOCALAPPDATA",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "PATHEXT",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "SYSTEMDRIVE",
  ],
  ...["SYSTEMROOT", "USERNAME", "USERPROFILE", "WINDIR", "PROCESSOR_ARCHITECTURE"],
]);

const ALLOWED_PREFIXES = ["LC_", "XDG_", "NPM_CONFIG_", "UV_", "PIP_"];

/** Package managers take registry credentials from variables too: these are for the operator to pass by `env`. */
const CREDENTIAL = /AUTH|TOKEN|PASSWORD|PASSWD|SECRET|USERNAME$/;

/** In what a child inherits, the names of what it must not be quoted with. */
const LIKELY_SECRET = /KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH/;

/** What a child was given and may print: everything that the configuration sets, and inherited keys. */
export function secretsOf(
  own: Environment,
  options: { readonly env: Readonly<Record<string, string>>; readonly inheritEnv: boolean },
): string[] {
  const inherited = options.inheritEnv ? Object.keys(own).filter((name) => LIKELY_SECRET.test(name.toUpperCase())) : [];
  return [...Object.values(options.env), ...inherited.flatMap((name) => own[name] ?? [])];
}

export function childEnvironment(
  own: Environment,
  options: { readonly env: Readonly<Record<string, string>>; readonly inheritEnv: boolean },
): Record<string, string> {
  const result: Record<string, string> = {};
  for (const name of Object.keys(own)) {
    const value = own[name];
    if (value !== undefined && (options.inheritEnv || isAllowed(name, value))) result[name] = value;
  }
  return { ...result, ...options.env };
}

function isAllowed(name: string, value: string): boolean {
  // An exported shell function: its text would be run by a shell that the child starts.
  if (value.startsWith("()")) return false;
  const upper = name.toUpperCase();
  if (ALLOWED.has(upper)) return true;
  return ALLOWED_PREFIXES.some((prefix) => upper.startsWith(prefix)) && !CREDENTIAL.test(upper);
}
