/**
 * Signs tokens for the protected route: good ones, and each kind that must be refused.
 */
import { generateKeyPairSync, sign } from "node:crypto";
import { ISSUER } from "./config.mjs";

const DAY_SECONDS = 24 * 3600;

export function createTokens() {
  const [own, foreign] = [0, 1].map(() => generateKeyPairSync("ec", { namedCurve: "P-256" }));
  const signed = (key, claims) => {
    const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
    const text = `${part({ alg: "ES256", kid: "chaos", typ: "JWT" })}.${part(claims)}`;
    const signature = sign("sha256", Buffer.from(text), { key: key.privateKey, dsaEncoding: "ieee-p1363" });
    return `${text}.${signature.toString("base64url")}`;
  };
  const claims = (sub) => {
    const now = Math.floor(Date.now() / 1000);
    // Far enough on both sides for the jumps of the clock.
    return { iss: ISSUER, aud: "chaos", sub, iat: now - DAY_SECONDS, exp: now + DAY_SECONDS };
  };
  return {
    keySet: JSON.stringify({
      keys: [{ ...own.publicKey.export({ format: "jwk" }), kid: "chaos", alg: "ES256", use: "sig" }],
    }),
    good: (sub) => signed(own, claims(sub)),
    bad: {
      expired: (sub) => signed(own, { ...claims(sub), exp: Math.floor(Date.now() / 1000) - DAY_SECONDS }),
      forged: (sub) => signed(foreign, claims(sub)),
      "for others": (sub) => signed(own, { ...claims(sub), aud: "others" }),
    },
  };
}
