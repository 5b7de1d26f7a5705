/**
 * Canonical paths, judged by a reading that was written a second time from RFC 3986, one octet at a time: the canonical
 * form is a single spelling and keeps the meaning; no accepted path steps out of its place, however often it is decoded;
 * a value in an outgoing path stays one segment.
 */
import {
  alternativePaths,
  canonicalPath,
  findAmbiguity,
  pathFault,
  pathSegment,
} from "../../../src/http/request-path.ts";
import { respelled } from "../../support/path-spellings.ts";
import { Random } from "../../support/random.ts";
import { defineTarget, expect, expectSame } from "../target.ts";

type Input = { readonly path: string; readonly value: string; readonly seed: number };

const PIECES = [
  "/", "//", "a", "b", "admin", ".", "..", "%2e", "%2E", "%2f", "%5c", "%5C", "%", "%25", "%252e", "%2525", "25", "2e", "%00", "%0a", "%7f",
  "%61", "%7e", "~", ";", ";x=1", "%3b", "%3B", "%3f", "%23", "%20", ":", "%3a", "@", "é", "%c3%a9", "%c0%ae", "%e9", "\"", "|", "[", "\\", "zz",
]; // biome-ignore format: a table

function generate(random: Random): Input {
  return { path: `/${random.text(PIECES, 8)}`, value: random.text(PIECES, 5), seed: random.int(1 << 30) };
}

/** One entry per octet or delimiter; equal lists are the same path. */
function meaningOf(path: string): string[] {
  const meaning: string[] = [];
  for (let i = 0; i < path.length; i++) {
    const character = path[i] as string;
    const hex = character === "%" ? path.slice(i + 1, i + 3) : "";
    if (/^[0-9a-fA-F]{2}$/.test(hex)) {
      const octet = Number.parseInt(hex, 16);
      const plain = String.fromCharCode(octet);
      meaning.push(/^[A-Za-z0-9\-._~]$/.test(plain) ? plain : `octet ${octet}`);
      i += 2;
    } else if (character === "/" && meaning.at(-1) === "/") continue;
    else if (/^[A-Za-z0-9\-._~!$&'()*+,;=:@/]$/.test(character)) meaning.push(character);
    else
      for (const octet of Buffer.from(String.fromCodePoint(path.codePointAt(i) ?? 0))) meaning.push(`octet ${octet}`);
    if ((path.codePointAt(i) ?? 0) > 0xffff) i += 1;
  }
  return meaning;
}

/** Every text that a server gets which decodes once, twice, … and one that also cuts parameters off. */
function readingsOf(path: string): string[] {
  const readings = [path];
  for (let rounds = 0; rounds < 12; rounds++) {
    const last = readings.at(-1) as string;
    const next = last.replace(/%([0-7][0-9a-f])/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
    if (next === last) break;
    readings.push(next);
  }
  return readings.flatMap((one) => [one, one.replace(/;[^/\\]*/g, ""), one.replace(/[?#].*$/s, "")]);
}

function checkSafe(path: string): void {
  for (const reading of readingsOf(path)) {
    for (const segment of reading.split(/[/\\]/)) expect(!/^\.{1,2} *$/.test(segment), `a dot segment in ${reading}`);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what must not be there
    expect(!/[\0-\x1f\x7f]/.test(reading), `a control character in ${JSON.stringify(reading)}`);
  }
}

function checkCanonical(path: string, seed: number): string {
  const canonical = canonicalPath(path);
  expect(/^\/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-F]{2})*$/.test(canonical), `${canonical} is not canonical`);
  expect(!canonical.includes("//"), "slashes are merged");
  expectSame(canonicalPath(canonical), canonical, "the canonical form of a canonical path");
  expectSame(meaningOf(canonical), meaningOf(path), "the meaning");
  expectSame(canonicalPath(respelled(path, new Random(seed))), canonical, "another spelling");
  expectSame(pathFault(canonical), undefined, "a canonical path is accepted again");
  const parsed = new URL(`http://h${canonical}`);
  expectSame([parsed.host, parsed.pathname], ["h", canonical], "the platform's reading");
  return canonical;
}

/** A path that rules call unambiguous has no other segments for a server that decodes as often as it likes. */
function checkAmbiguity(canonical: string): void {
  const last = readingsOf(canonical).at(-3) as string;
  const isFolded =
    last.includes("\\") ||
    last.includes(";") ||
    last.replace(/\/+/g, "/").split("/").length !== canonical.split("/").length;
  if (isFolded) expect(findAmbiguity(canonical) !== undefined, `${canonical} is read as ${last}`);
  if (isFolded) expect(alternativePaths(canonical).length > 0, `${canonical} has no other reading than ${last}`);
  for (const reading of alternativePaths(canonical))
    expectSame(canonicalPath(reading), reading, "a reading is canonical");
}

function checkSegment(value: string): string {
  const segment = pathSegment(value);
  if (segment === undefined) return "no segment";
  expectSame(decodeURIComponent(segment), value, "the value");
  for (const reading of readingsOf(`/a/${segment}/end`)) {
    // A server that decodes `%3F` and then looks for the query is beyond help; the value must not lead elsewhere.
    if (!reading.endsWith("/end")) {
      expect(reading.startsWith("/a/"), `${JSON.stringify(value)} is read as ${reading}`);
      continue;
    }
    const segments = reading.split(/[/\\]/);
    expect(
      segments.length === 4 && !/^[. ]*$/.test(segments[2] as string),
      `${JSON.stringify(value)} is read as ${reading}`,
    );
  }
  return "a segment";
}

export const requestPaths = defineTarget<Input>({
  name: "request-paths",
  seeds: [
    { path: "/a/b", value: "a", seed: 1 },
    { path: "//%61dmin/%2561;x/caf%c3%a9", value: "a b", seed: 2 },
  ],
  smokeCases: 8_000,
  generate,
  run({ path, value, seed }) {
    if (typeof path !== "string" || !path.startsWith("/") || /[?#\s]/.test(path) || /\p{Surrogate}/u.test(path))
      return "no path";
    const said = checkSegment(String(value));
    const fault = pathFault(path);
    if (fault !== undefined) return `${fault}, ${said}`;
    checkSafe(path);
    const canonical = checkCanonical(path, seed);
    checkSafe(canonical);
    checkAmbiguity(canonical);
    return `${findAmbiguity(canonical)} ${alternativePaths(canonical).length} ${canonical === path}, ${said}`;
  },
});
