/**
 * Parses the curl arguments of inject mode (spec 4.4). Unlisted options are rejected, because some of them send the
 * request to another host or write files.
 */
import { usageError } from "../terminal/terminal.ts";

const LONG: Readonly<Record<string, boolean>> = {
  "--request": true,
  "--header": true,
  "--data": true,
  "--data-ascii": true,
  "--data-raw": true,
  "--data-binary": true,
  "--data-urlencode": true,
  "--json": true,
  "--form": true,
  "--form-string": true,
  "--upload-file": true,
  "--user": true,
  "--oauth2-bearer": true,
  "--user-agent": true,
  "--referer": true,
  "--cookie": true,
  "--range": true,
  "--url-query": true,
  "--request-target": true,
  "--max-time": true,
  "--connect-timeout": true,
  "--expect100-timeout": true,
  "--limit-rate": true,
  "--cacert": true,
  "--cert": true,
  "--key": true,
  "--get": false,
  "--head": false,
  "--include": false,
  "--silent": false,
  "--show-error": false,
  "--verbose": false,
  "--insecure": false,
  "--no-buffer": false,
  "--fail": false,
  "--compressed": false,
  "--basic": false,
  "--path-as-is": false,
  "--raw": false,
  "--http1.0": false,
  "--http1.1": false,
};
const SHORT: Readonly<Record<string, string>> = {
  X: "--request",
  H: "--header",
  d: "--data",
  F: "--form",
  T: "--upload-file",
  u: "--user",
  A: "--user-agent",
  e: "--referer",
  b: "--cookie",
  r: "--range",
  m: "--max-time",
  E: "--cert",
  G: "--get",
  I: "--head",
  i: "--include",
  s: "--silent",
  S: "--show-error",
  v: "--verbose",
  k: "--insecure",
  N: "--no-buffer",
  f: "--fail",
  "0": "--http1.0",
};

export interface InjectedRequest {
  readonly url: string;
  readonly args: readonly string[];
  readonly requestId: string | undefined;
}

export function parseCurlArguments(given: readonly string[]): InjectedRequest {
  const urls: string[] = [];
  const args: string[] = [];
  let requestId: string | undefined;

  const take = (name: string, value: string | undefined): void => {
    const id = name === "--header" ? /^x-request-id:\s*(\S+)\s*$/i.exec(value ?? "")?.[1] : undefined;
    requestId = id ?? requestId;
  };
  for (let i = 0; i < given.length; i++) {
    const word = given[i] as string;
    if (!word.startsWith("-") || word === "-") {
      urls.push(word);
      continue;
    }
    args.push(word);
    const option = word.startsWith("--") ? longOption(word) : shortOptions(word);
    if (option.needsValue) {
      i += 1;
      const value = given[i];
      if (value === undefined) throw usageError(`curl option ${word} needs a value`);
      args.push(value);
      take(option.name, value);
    } else take(option.name, option.attached);
  }
  return { url: onlyUrl(urls), args, requestId };
}

interface ReadOption {
  readonly name: string;
  readonly needsValue: boolean;
  readonly attached: string | undefined;
}

function longOption(word: string): ReadOption {
  const takesValue = LONG[word];
  if (takesValue === undefined) throw unsupportedOption(word);
  return { name: word, needsValue: takesValue, attached: undefined };
}

function shortOptions(word: string): ReadOption {
  for (let i = 1; i < word.length; i++) {
    const name = SHORT[word[i] as string];
    if (name === undefined) throw unsupportedOption(`-${word[i]}`);
    if (!LONG[name]) continue;
    const attached = word.slice(i + 1);
    return attached === "" ? { name, needsValue: true, attached: undefined } : { name, needsValue: false, attached };
  }
  return { name: word, needsValue: false, attached: undefined };
}

function onlyUrl(urls: readonly string[]): string {
  if (urls.length !== 1)
    throw usageError(
      urls.length === 0
        ? "expected a URL after --, for example -- http://example.test/mcp -X POST"
        : `one request can be traced at a time; found ${urls.length} URLs: ${urls.join(" ")}`,
    );
  return httpUrl("the URL after --", urls[0] as string);
}

/** Returns the text if it is an http or https URL, and otherwise throws a usage error. */
export function httpUrl(name: string, text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol === "http:" || url?.protocol === "https:") return text;
  const hint = text.includes("://") || !URL.canParse(`http://${text}`) ? "" : `, for example http://${text}`;
  throw usageError(`${name} must begin with http:// or https://${hint}: found ${text}`);
}

function unsupportedOption(option: string): Error {
  return usageError(
    `curl option ${option} is not supported: use options that shape the request (method, headers, body, user, cookies)`,
  );
}

export interface CurlCall {
  readonly url: string;
  readonly args: readonly string[];
  readonly port: number;
  /** If set, it replaces the scheme of the URL. */
  readonly scheme: "http" | "https" | undefined;
  readonly requestId: string;
  readonly hasRequestId: boolean;
}

export function curlCommand({ url, args, port, scheme, requestId, hasRequestId }: CurlCall): string[] {
  const sent = scheme === undefined ? url : url.replace(/^https?:/i, `${scheme}:`);
  const host = omittedHost(sent);
  return [
    // curl reads ~/.curlrc unless this is the first argument.
    "--disable",
    "--silent",
    "--show-error",
    "--noproxy",
    "*",
    "--proto",
    "=http,https",
    // Every host and port connects to the listener, but the Host header keeps the host of the URL (spec 4.4).
    "--connect-to",
    `::127.0.0.1:${port}`,
    "--output",
    "/dev/null",
    "--globoff",
    ...(hasRequestId ? [] : ["--header", `x-request-id: ${requestId}`]),
    ...(host === undefined || args.some((arg) => /^(?:-H)?\s*host\s*[:;]/i.test(arg))
      ? []
      : ["--header", `Host: ${host}`]),
    ...args,
    "--url",
    sent,
  ];
}

/**
 * curl omits the default port of the scheme from the Host header. Returns the host and port if the URL contains that
 * port.
 */
function omittedHost(url: string): string | undefined {
  const named = /^(https?):\/\/(?:[^/?#]*@)?([^/?#]*:0*(\d+))(?:[/?#]|$)/i.exec(url);
  return named && named[3] === (named[1]?.toLowerCase() === "https" ? "443" : "80") ? named[2] : undefined;
}
