/** Reasons why the gateway rejects tokens that other libraries accept. They are computed from the token, not from the verdict. */
import { MAX_TOKEN_BYTES } from "../../../src/identity/tokens/token.ts";

export interface SeenToken {
  readonly text: string;
  readonly parts: readonly string[];
  readonly header: Readonly<Record<string, unknown>>;
  readonly claims: Readonly<Record<string, unknown>>;
}

export type TokenReasons = Readonly<Record<string, (token: SeenToken) => boolean>>;

export const STRICTER: TokenReasons = {
  "it is larger than a token may be": ({ text }) => text.length > MAX_TOKEN_BYTES,
  "base64url has no padding, no spaces, no other alphabet, and one spelling (RFC 7515 section 2, RFC 4648 section 3.5)":
    ({ parts }) => parts.some((part) => Buffer.from(part, "base64url").toString("base64url") !== part),
  "an extension of the header that changes what is signed or must be understood": ({ header }) =>
    ["crit", "b64", "zip", "enc"].some((name) => Object.hasOwn(header, name)),
  "without a kid, several keys could have signed it": ({ header }) => header.kid === undefined,
  "its type is that of another kind of token (RFC 8725 section 3.11)": ({ header }) =>
    /\+jwt$/i.test(String(header.typ)) && !/^(?:application\/)?at\+jwt$/i.test(String(header.typ)),
  "a time that is infinite": ({ claims }) =>
    [claims.exp, claims.nbf, claims.iat].some((time) => Math.abs(Number(time)) === Number.POSITIVE_INFINITY),
  "it is an ID token": ({ claims }) =>
    claims.at_hash !== undefined || claims.c_hash !== undefined || claims.typ === "ID",
};

export function reasonFor(reasons: TokenReasons, text: string): string | undefined {
  const token = seen(text);
  return Object.keys(reasons).find((name) => reasons[name]?.(token));
}

function seen(text: string): SeenToken {
  const parts = text.split(".");
  const object = (part: string | undefined): Record<string, unknown> => {
    try {
      const value: unknown = JSON.parse(Buffer.from(part ?? "", "base64url").toString("utf8"));
      return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
    } catch {
      return {};
    }
  };
  return { text, parts, header: object(parts[0]), claims: object(parts[1]) };
}
