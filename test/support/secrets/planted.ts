/**
 * Secrets that a test plants, and a search for them in the gateway's output, plain and in every common encoding. The
 * search is independent of the redaction code.
 */
import { randomBytes } from "node:crypto";

/** A leak may be cut: the beginning of a secret is as bad as all of it. */
const HEAD_CHARS = 16;
/** Bodies in a trace stand as base64 of their own. */
const TRACE_BODY = /"body":"([A-Za-z0-9+/=]+)"/g;

export interface Leak {
  readonly secret: string;
  readonly form: string;
  /** What stands around it, for whoever looks for the leak. */
  readonly around: string;
}

export class Planted {
  readonly #secrets = new Map<string, string>();

  /** A new secret: random, with characters that base64 and base64url write differently. */
  plant(name: string): string {
    return this.add(name, `${randomBytes(10).toString("hex")}~~~${randomBytes(6).toString("hex")}`);
  }

  /** One that somebody else made, for example a provider's token. */
  add(name: string, secret: string): string {
    if (secret.length < HEAD_CHARS) throw new Error(`${name} is too short to be told from other text`);
    this.#secrets.set(name, secret);
    return secret;
  }

  /** A signed token: neither its claims as sent nor its signature may appear. The header is the same in all. */
  addToken(name: string, token: string): string {
    const [, claims = "", signature = ""] = token.split(".");
    this.add(`${name} (claims)`, claims);
    this.add(`${name} (signature)`, signature);
    return token;
  }

  /** Every secret that the text holds, in whatever form. */
  leaksIn(text: string): Leak[] {
    const bodies = [...text.matchAll(TRACE_BODY)].map(([, body]) => Buffer.from(body ?? "", "base64").toString());
    const whole = [text, ...bodies].join("\n");
    const leaks: Leak[] = [];
    for (const [secret, value] of this.#secrets) {
      for (const [form, needle] of [...formsOf(value.slice(0, HEAD_CHARS)), ...formsOf(value)]) {
        const at = whole.indexOf(needle);
        if (at < 0) continue;
        leaks.push({ secret, form, around: whole.slice(Math.max(0, at - 160), at + needle.length + 40) });
        break;
      }
    }
    return leaks;
  }
}

/** Each encoding of the secret, as far as it does not depend on what stands around it. */
export function* formsOf(secret: string): Generator<[form: string, needle: string]> {
  const bytes = Buffer.from(secret);
  const hex = bytes.toString("hex");
  yield ["raw", secret];
  yield ["percent-encoded", encodeURIComponent(secret)];
  yield ["percent-encoded throughout", hex.replace(/../g, "%$&")];
  yield ["percent-encoded throughout", hex.toUpperCase().replace(/../g, "%$&")];
  yield ["JSON-escaped", JSON.stringify(secret).slice(1, -1)];
  yield ["JSON-escaped throughout", hex.replace(/../g, "\\u00$&")];
  yield ["hex", hex];
  yield ["hex", hex.toUpperCase()];
  // What comes before shifts the groups of base64 by 0, 1 or 2 bytes; the edges mix with the neighbours.
  for (let shift = 0; shift < 3; shift++) {
    const whole = Buffer.concat([Buffer.alloc(shift), bytes]);
    const inner = whole.subarray(shift === 0 ? 0 : 3, whole.length - (whole.length % 3));
    yield ["base64", inner.toString("base64")];
    yield ["base64url", inner.toString("base64url")];
  }
}
