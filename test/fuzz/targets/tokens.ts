/**
 * Tokens and key sets: what our verifier accepts, `jose` accepts as well, with the same claims; a token that nobody
 * touched is accepted; and a key that is left out of a set never verifies anything.
 */
import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import { createRequire } from "node:module";
import type { Clock } from "../../../src/base/clock.ts";
import { createInlineKeySet } from "../../../src/identity/keys/key-set.ts";
import { createTokenVerifier } from "../../../src/identity/keys/token-verifier.ts";
import { readKeySet } from "../../../src/identity/keys/verification-key.ts";
import type { Random } from "../../support/random.ts";
import { defineTarget, expect, expectSame, refusalOf } from "../target.ts";

/** The token is made from the case when it runs, so that a case can be read and no key has to be kept. */
type Input = {
  readonly header: string;
  readonly claims: string;
  readonly signer: number;
  /** Changes to the finished token: replaced characters at a place. */
  readonly at: number;
  readonly cut: number;
  readonly insert: string;
  /** A key set as text, for the reader of key sets. */
  readonly keys: string;
};

interface Jose {
  createLocalJWKSet(set: object): unknown;
  jwtVerify(token: string, keys: unknown, options: object): Promise<{ payload: object }>;
}
/** Of the identity provider that scenarios run: an independent verifier. */
const jose = createRequire(import.meta.url)("jose") as Jose;

const NOW_SECONDS = 1_800_000_000;
const ISSUER = "https://issuer.example";
const AUDIENCE = "gateway";

interface Signer {
  readonly kid: string;
  readonly alg: string;
  readonly privateKey: KeyObject;
}
/** Fixed, and therefore worthless; Ed25519 signs the same text the same way every time. */
const ed = createPrivateKey({
  key: Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), Buffer.alloc(32, 7)]),
  format: "der",
  type: "pkcs8",
});
const signers: readonly Signer[] = [
  { kid: "ed", alg: "EdDSA", privateKey: ed },
  { kid: "ec", alg: "ES256", privateKey: generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey },
];
const jwks = {
  keys: signers.map(({ kid, alg, privateKey }) => ({
    ...createPublicKey(privateKey).export({ format: "jwk" }),
    kid,
    alg,
    use: "sig",
  })),
};
const clock = { now: () => NOW_SECONDS * 1000 } as unknown as Clock;
const verifier = createTokenVerifier(createInlineKeySet(jwks), clock);
const joseKeys = jose.createLocalJWKSet(jwks);

function tokenOf({ header, claims, signer }: Input): string {
  const signed = `${Buffer.from(header).toString("base64url")}.${Buffer.from(claims).toString("base64url")}`;
  const { privateKey } = signers[Math.abs(Math.trunc(signer)) % signers.length] as Signer;
  const signature = sign(privateKey.asymmetricKeyType === "ed25519" ? null : "sha256", Buffer.from(signed), {
    key: privateKey,
    dsaEncoding: "ieee-p1363",
  });
  return `${signed}.${signature.toString("base64url")}`;
}

function checkKeys(text: string): string {
  let outcome = "";
  const refusal = refusalOf(() => {
    const { keys, skipped } = readKeySet(text);
    const list = (JSON.parse(text) as { keys: unknown[] }).keys;
    expect(keys.length + skipped.length === list.length || list.length > 100, "a key is neither read nor named");
    for (const { key, algorithms, kid } of keys) {
      expect(key.type === "public", "a key that is not public");
      expect(
        algorithms.length > 0 &&
          algorithms.every((one) => /^(?:[RP]S(?:256|384|512)|ES(?:256|384|512)|EdDSA)$/.test(one)),
        "an algorithm",
      );
      const bits = key.asymmetricKeyDetails?.modulusLength;
      expect(bits === undefined || bits >= 2048, "a short RSA key");
      const from = list.filter((one) => (one as { kid?: unknown } | null)?.kid === kid) as Record<string, unknown>[];
      expect(
        from.some(({ use }) => use === undefined || use === "sig"),
        "a key for encryption",
      );
      expect(
        from.some(({ kty }) => kty !== "oct"),
        "a shared secret",
      );
    }
    outcome = `keys ${keys.length} ${skipped.map((one) => one.replace(/^.*?\): /, "").slice(0, 12)).join()}`;
  }, Error);
  return refusal === undefined ? outcome : refusal.message;
}

const HEADERS = [
  '"alg":"EdDSA"',
  '"alg":"ES256"',
  '"alg":"none"',
  '"alg":"HS256"',
  '"kid":"ed"',
  '"kid":"ec"',
  '"kid":"x"',
  '"kid":1',
  '"typ":"JWT"',
  '"typ":"at+jwt"',
  '"typ":"logout+jwt"',
  '"crit":["x"]',
  '"b64":false',
  '"zip":"DEF"',
  '"jwk":{}',
  '"x5c":[]',
  '"alg":"eddsa"',
];
const TIMES = [NOW_SECONDS + 60, NOW_SECONDS - 1, NOW_SECONDS - 61, NOW_SECONDS + 61, 0, 1e12, -1]
  .map(String)
  .concat("null", '"9"', "1e999");
const KEYS = jwks.keys
  .map((key) => JSON.stringify(key))
  .concat(
    '{"kty":"oct","k":"AA"}',
    '{"kty":"RSA","n":"AQAB","e":"AQAB"}',
    "null",
    "1",
    '{"kty":"EC","crv":"P-256"}',
    '{"kty":"OKP","crv":"X25519","x":"AA"}',
    '{"kty":"__proto__"}',
  );

function generate(random: Random): Input {
  const signer = random.int(2);
  const { kid, alg } = signers[signer] as Signer;
  const header = random.oneIn(3)
    ? `{${random.list(4, () => random.pick(HEADERS)).join(",")}}`
    : `{"alg":"${alg}","kid":"${kid}"}`;
  const times = random.list(2, () => `"${random.pick(["exp", "nbf", "iat"])}":${random.pick(TIMES)}`);
  const audience = random.pick([`"${AUDIENCE}"`, `"${AUDIENCE}"`, `["${AUDIENCE}","x"]`, '"x"', "[]", "1"]);
  const claims = `{"iss":"${random.oneIn(8) ? "x" : ISSUER}","aud":${audience},"exp":${NOW_SECONDS + 100}${times.map((one) => `,${one}`).join("")}}`;
  const isTouched = random.oneIn(3);
  return {
    header,
    claims: random.oneIn(20) ? random.pick(["[]", "1", "", "{", "null"]) : claims,
    signer,
    at: random.int(300),
    cut: isTouched ? random.int(4) : 0,
    insert: isTouched ? random.pick(["", "A", ".", "=", "_", "/", "+", "\n", " "]) : "",
    keys: `{"keys":[${random.list(3, () => random.pick(KEYS)).join(",")}]}`,
  };
}

export const tokens = defineTarget<Input>({
  name: "tokens",
  seeds: [
    {
      header: '{"alg":"EdDSA","kid":"ed"}',
      claims: `{"iss":"${ISSUER}","aud":"${AUDIENCE}","exp":${NOW_SECONDS + 100}}`,
      signer: 0,
      at: 0,
      cut: 0,
      insert: "",
      keys: JSON.stringify(jwks),
    },
  ],
  smokeCases: 800,
  generate,
  async run(input) {
    const keysOutcome = checkKeys(input.keys);
    const made = tokenOf(input);
    const at = Math.max(0, Math.trunc(input.at)) % (made.length + 1);
    const token = `${made.slice(0, at)}${input.insert}${made.slice(at + Math.max(0, Math.trunc(input.cut)))}`;
    const verdict = await verifier.verify(token, { issuer: ISSUER, audiences: [AUDIENCE] });
    if (verdict.kind !== "valid") {
      expect(verdict.kind === "invalid", "no keys");
      const kid = signers[input.signer]?.kid;
      const isPlain =
        token === made && /^\{"alg":"\w+","kid":"\w+"\}$/.test(input.header) && input.header.includes(`"${kid}"`);
      if (isPlain)
        expect(
          !["form", "signature", "key"].includes(verdict.problem.check) || !isClaims(input.claims),
          `a good token was refused: ${verdict.problem.detail}`,
        );
      return `${verdict.problem.check} ${verdict.problem.reason} ${keysOutcome}`;
    }
    let judged: { payload: object };
    try {
      judged = await jose.jwtVerify(token, joseKeys, {
        issuer: ISSUER,
        audience: AUDIENCE,
        clockTolerance: 60,
        currentDate: new Date(NOW_SECONDS * 1000),
      });
    } catch (error) {
      expect(false, `jose refuses it: ${(error as Error).message}`);
      return "";
    }
    expectSame(verdict.claims, judged.payload, "the claims");
    return `valid ${Object.keys(verdict.claims).length} ${keysOutcome}`;
  },
});

function isClaims(text: string): boolean {
  try {
    const value = JSON.parse(text) as unknown;
    return typeof value === "object" && value !== null && !Array.isArray(value) && text.length < 4_000;
  } catch {
    return false;
  }
}
