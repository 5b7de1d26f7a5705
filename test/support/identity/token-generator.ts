/**
 * Generates valid and invalid tokens from a seed, to compare our verification with another library. Most tokens have
 * one or two defects.
 */
import { createHmac, sign } from "node:crypto";
import { randomFrom } from "../random.ts";
import { createSigningKey, encode, publicJwk, type SigningKey, START_MS, signToken } from "./tokens.ts";

export interface GeneratedToken {
  readonly text: string;
  /** What was done to it. */
  readonly ways: string;
  /** The number of the key set in `keySets()` that it is for. */
  readonly set: number;
}

export const ISSUER = "https://id.example.com/realms/a";
export const AUDIENCES = ["gateway", "api://gateway"];
const NOW = START_MS / 1000;

const rsa = createSigningKey("RS256", "rsa");
const bound = createSigningKey("RS256", "bound");
const short = createSigningKey("RS256", "short", 1024);
const ec256 = createSigningKey("ES256", "ec256");
const ec384 = createSigningKey("ES384", "ec384");
const ec512 = createSigningKey("ES512", "ec512");
const ed = createSigningKey("EdDSA", "ed");
const twin = createSigningKey("ES256", "ec256");
const forOther = createSigningKey("ES256", "for-other");
const strangers = [createSigningKey("RS256", "rsa"), createSigningKey("EdDSA", "ed"), twin];

/** They sign in a moment: each of their tokens is another. */
const quick: readonly SigningKey[] = [ec256, ed];
/** They take milliseconds: of these a few dozen tokens each are signed, and then changed. */
const slow: readonly SigningKey[] = [
  ...["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"].map((algorithm) => ({ ...rsa, algorithm })),
  ec384,
  ec512,
  { ...bound, algorithm: "RS512" },
  { ...bound, algorithm: "PS512" },
];
/** The larger curves take longest, also to verify. */
const slowTokens = ({ algorithm }: SigningKey): number => (algorithm.startsWith("ES") ? 10 : 40);

export function keySets(): { keys: Record<string, unknown>[] }[] {
  const all = [rsa, ec256, ec384, ec512, ed].map((key) => publicJwk(key));
  return [
    {
      keys: [
        ...all,
        publicJwk(bound, { alg: "RS512" }),
        publicJwk(short),
        publicJwk(forOther, { use: "enc" }),
        { ...publicJwk(forOther), kid: "ops", use: undefined, key_ops: ["sign"] },
        { kty: "oct", kid: "secret", k: encode("a shared secret of the provider") },
        { kty: "EC", crv: "secp256k1", kid: "curve", x: "AA", y: "AA" },
      ].map((jwk) => JSON.parse(JSON.stringify(jwk)) as Record<string, unknown>),
    },
    // Without names.
    { keys: all.map(({ kid: _, use: __, ...jwk }) => jwk) },
    // Two keys of one name.
    { keys: [publicJwk(twin), publicJwk(ec256), publicJwk(rsa, { key_ops: ["verify"] })] },
  ];
}

interface Draft {
  readonly key: SigningKey;
  readonly header: Readonly<Record<string, unknown>>;
  readonly claims: Readonly<Record<string, unknown>>;
  readonly headerText?: string;
  readonly payload?: string | Buffer;
}
type Pick = <Value>(values: readonly Value[]) => Value;
/** What it makes different. */
type Way = (draft: Draft, pick: Pick) => Partial<Draft>;

const ALGS = "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA".split(" ");
const OTHER_ALGS = "none None nOnE HS256 HS512 RS1 ES256K Ed25519 RSA-OAEP dir rs256".split(" ");
const ODD: readonly unknown[] = [null, 0, 1, true, false, "", [], {}, ["x"], { a: 1 }, "x", -1, 1.5, undefined];
const TIMES: readonly unknown[] = [
  ...[-61, -60, -59, -1, 0, 1, 59, 60, 61, 3600, 1e12].map((offset) => NOW + offset),
  ...[NOW + 0.5, String(NOW), Number.MAX_SAFE_INTEGER],
];
const OTHER_KEYS = ["other", "constructor", "short", "ops", "secret", "curve", "for-other"];
const TYPES = ["at+jwt", "application/at+jwt", "JWT", "jwt", "logout+jwt", "dpop+jwt", "JOSE"];
const ISSUERS = [`${ISSUER}/`, ISSUER.toUpperCase(), [ISSUER], `${ISSUER}\n`, ISSUER.slice(0, -1)];
const OTHER_AUDIENCES = [
  "api://gateway",
  ["account", "gateway"],
  ["account"],
  [["gateway"]],
  [1, null, "gateway"],
  "gateway2",
  "gate",
  "Gateway",
  "gateway,api://gateway",
  { gateway: true },
];

/** One member of the header, or one claim, is one of these. */
const headerIs =
  (name: string, values: readonly unknown[]): Way =>
  ({ header }, pick) => ({ header: { ...header, [name]: pick(values) } });
const claimIs =
  (name: string, values: readonly unknown[]): Way =>
  ({ claims }, pick) => ({ claims: { ...claims, [name]: pick(values) } });

/** Before the signature: these tokens are signed by whom they say. */
const before: Readonly<Record<string, Way>> = {
  nothing: () => ({}),
  "alg of the list": headerIs("alg", ALGS),
  "alg of no list": headerIs("alg", [...OTHER_ALGS, ...ODD]),
  kid: headerIs("kid", [...OTHER_KEYS, ...ODD]),
  typ: headerIs("typ", [...TYPES, ...ODD]),
  crit: headerIs("crit", [["exp"], ["b64"], ["alg"], "b64", ...ODD]),
  "crit and b64": ({ header }, pick) => ({ header: { ...header, crit: ["b64"], b64: pick([true, false, "x"]) } }),
  b64: headerIs("b64", [true, false]),
  zip: headerIs("zip", ["DEF"]),
  enc: headerIs("enc", ["A256GCM"]),
  "a key of its own": headerIs(
    "jwk",
    strangers.map((key) => publicJwk(key)),
  ),
  "an address of its own keys": headerIs("jku", ["http://127.0.0.1:1/keys", "file:///etc/passwd"]),
  "a certificate of its own": headerIs("x5c", [["MIIB"], "MIIB"]),
  "another member": ({ header }, pick) => ({ header: { ...header, [pick(["cty", "iss", "p2c", "epk"])]: pick(ODD) } }),
  iss: claimIs("iss", [...ISSUERS, ...ODD]),
  aud: claimIs("aud", [...OTHER_AUDIENCES, ...ODD]),
  exp: claimIs("exp", [...TIMES, ...ODD]),
  nbf: claimIs("nbf", [...TIMES, ...ODD]),
  iat: claimIs("iat", [...TIMES, ...ODD]),
  "an infinite time": ({ claims }, pick) => {
    const { [pick(["exp", "nbf", "iat"])]: _, ...rest } = claims;
    return {
      payload: `{"${pick(["exp", "nbf", "iat"])}":${pick(["1e400", "-1e400"])},${JSON.stringify(rest).slice(1)}`,
    };
  },
  "an ID token": ({ claims }, pick) => ({
    claims: { ...claims, [pick(["at_hash", "c_hash", "nonce", "typ"])]: pick(["ID", "x"]) },
  }),
  "a repeated claim": ({ claims }, pick) => {
    const [json, repeated] = [JSON.stringify(claims), `"${pick(["iss", "aud", "exp", "sub"])}":"evil"`];
    return { payload: pick([`{${repeated},${json.slice(1)}`, `${json.slice(0, -1)},${repeated}}`]) };
  },
  "a repeated header member": ({ header }, pick) => {
    const [json, repeated] = [
      JSON.stringify(header),
      pick(['"alg":"none"', '"alg":"HS256"', '"alg":"ES256"', '"kid":"other"', '"crit":["b64"]', '"\\u0061lg":"none"']),
    ];
    return { headerText: pick([`{${repeated},${json.slice(1)}`, `${json.slice(0, -1)},${repeated}}`]) };
  },
  "spaces in the header": ({ header }, pick) => ({
    headerText: pick([
      ` ${JSON.stringify(header)}`,
      `${JSON.stringify(header, null, 1)}\r\n`,
      `\ufeff${JSON.stringify(header)}`,
    ]),
  }),
  "odd claims": (_, pick) => ({
    payload: pick(["", "{", "[]", "null", '"x"', "1", "{}", '{"a":1}x', "\ufeff{}", '{"a":"\\ud800"}']),
  }),
  "spaces in the claims": ({ claims }) => ({ payload: ` \n${JSON.stringify(claims, null, 2)}\t` }),
  "claims that are no UTF-8": ({ claims }) => ({
    payload: Buffer.from(`${JSON.stringify(claims).slice(0, -1)},"x":"\xff"}`, "latin1"),
  }),
  "large claims": ({ claims }, pick) => ({
    claims: { ...claims, padding: "x".repeat(pick([1_000, 5_000, 6_200, 9_000])) },
  }),
  "a stranger's key": ({ header }, pick) => {
    const key = pick(strangers);
    return { key, header: { ...header, alg: key.algorithm, kid: key.kid } };
  },
  "another key": (_, pick) => ({ key: pick(quick) }),
  "a short key": ({ header }) => ({ key: short, header: { ...header, alg: "RS256", kid: "short" } }),
};

const PUBLIC_PEM = rsa.publicKey.export({ format: "pem", type: "spki" });
const BASE64URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/** With another text in one place, if there is such a place. */
const put = (parts: string[], at: number, text: string): string[] =>
  parts.map((part, index) => (index === at ? text : part));
type After = (parts: string[], pick: Pick) => string[];

/** After the signature: these were changed on their way. */
const after: Readonly<Record<string, After>> = {
  "another character": (parts, pick) => {
    const at = pick([0, 1, 2]);
    const part = parts[at] ?? "";
    const place = part === "" ? 0 : pick([...part].map((_, index) => index));
    return put(parts, at, part.slice(0, place) + pick([...BASE64URL]) + part.slice(place + 1));
  },
  "a character less": (parts, pick) => {
    const at = pick([0, 1, 2]);
    return put(parts, at, (parts[at] ?? "").slice(0, -1));
  },
  "something more": (parts, pick) => {
    const at = pick([0, 1, 2]);
    return put(parts, at, `${parts[at]}${pick(["=", "==", "A", "AA", "AAAA", "+", "/", " ", "\n", "~", "\u00e9"])}`);
  },
  "a space in the middle": (parts, pick) => {
    const at = pick([0, 1, 2]);
    return put(parts, at, `${parts[at]?.slice(0, 4)}${pick([" ", "\n", "\t"])}${parts[at]?.slice(4)}`);
  },
  "another number of parts": (parts, pick) =>
    pick([
      parts.slice(0, 2),
      parts.slice(1),
      [...parts, ""],
      [...parts, "AA"],
      [...parts, "AA", "AA"],
      [""],
      ["", ...parts],
    ]),
  "no signature": (parts) => put(parts, 2, ""),
  "a part of another kind": (parts, pick) =>
    put(
      parts,
      pick([0, 1]),
      encode(pick(["[]", "null", '"x"', "{", "", "1", '{"alg":"none"}', '{"alg":"RS256","alg":"none"}'])),
    ),
  "claims of its own": (parts, pick) =>
    put(
      parts,
      1,
      encode(JSON.stringify({ iss: ISSUER, aud: "gateway", exp: NOW + 300, sub: pick(["root", "alice"]) })),
    ),
  "the signature of another form": ([header = "", payload = ""], pick) => {
    const data = Buffer.from(`${header}.${payload}`);
    const forms = [
      () => sign("sha256", data, ec256.privateKey),
      () => Buffer.alloc(pick([0, 1, 32, 64, 96, 132, 256])),
      () => createHmac("sha256", PUBLIC_PEM).update(data).digest(),
      () => createHmac("sha256", "a shared secret of the provider").update(data).digest(),
    ];
    return [header, payload, pick(forms)().toString("base64url")];
  },
};

export function* generateTokens(count: number, seed: number): Generator<GeneratedToken> {
  const random = randomFrom(seed);
  const pick: Pick = (values) => values[Math.floor(random() * values.length)] as (typeof values)[number];
  const sets = keySets().length;
  const pool: GeneratedToken[] = slow.flatMap((key) => Array.from({ length: slowTokens(key) }, () => signed(key)));
  yield* pool;
  for (let i = pool.length; i < count; i++) {
    const token = random() < 0.3 ? changed(pick(pool)) : signed(pick(quick));
    yield random() < 0.7 ? token : changed(token);
  }

  function signed(key: SigningKey): GeneratedToken {
    const set = random() < 0.7 ? 0 : Math.floor(random() * sets);
    let draft: Draft = {
      key,
      header: { alg: key.algorithm, kid: set === 1 ? undefined : key.kid },
      claims: { iss: ISSUER, sub: "alice", aud: "gateway", exp: NOW + 300, iat: NOW - 5 },
    };
    const ways = Array.from({ length: pick([0, 1, 1, 1, 2, 3]) }, () => pick(Object.keys(before)));
    for (const way of ways) draft = { ...draft, ...before[way]?.(draft, pick) };
    return { text: signToken(draft), ways: `${key.algorithm}: ${ways.join(", ")}`, set };
  }

  function changed({ text, ways, set }: GeneratedToken): GeneratedToken {
    const way = pick(Object.keys(after));
    const parts = (after[way] as After)(text.split("."), pick);
    return { text: parts.join("."), ways: `${ways}, ${way}`, set };
  }
}
