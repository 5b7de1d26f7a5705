/**
 * Signs requests to AWS (Signature Version 4) with the maintained signer; loaded when the first request needs it.
 * Hashes are node's own: a body of 20 MB would take the JavaScript implementation a second.
 */
import { createHash, createHmac, type Hash, type Hmac } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import { exportsOf } from "../../base/exports-of.ts";
import type { HeaderList } from "../../http/headers.ts";
import type { AwsKeys } from "./aws-keys.ts";
import type { Renewed } from "./renewed.ts";

export interface SignedRequest {
  readonly method: string;
  readonly protocol: "http" | "https";
  readonly hostname: string;
  readonly port: number;
  /** Path and query. */
  readonly path: string;
  readonly headers: HeaderList;
  readonly body: readonly Buffer[];
}

/** Adds the signature to the headers. Rejects with CredentialError. */
export type AwsSigner = (request: SignedRequest) => Promise<void>;

export function createAwsSigner(keys: Renewed<AwsKeys>, region: string, clock: Clock): AwsSigner {
  let loading: Promise<(request: SignedRequest) => Promise<void>> | undefined;
  return async (request) => {
    loading ??= load(keys, region, clock);
    await (await loading)(request);
  };
}

async function load(
  keys: Renewed<AwsKeys>,
  region: string,
  clock: Clock,
): Promise<(request: SignedRequest) => Promise<void>> {
  const [{ SignatureV4 }, { HttpRequest }] = await Promise.all([
    import("@smithy/signature-v4").then(exportsOf),
    import("@smithy/protocol-http").then(exportsOf),
  ]);
  const signer = new SignatureV4({
    service: "bedrock",
    region,
    credentials: async () => {
      const { accessKeyId, secretAccessKey, sessionToken } = await keys.get();
      return { accessKeyId, secretAccessKey, ...(sessionToken === undefined ? {} : { sessionToken }) };
    },
    sha256: NodeSha256,
  });
  return async ({ method, protocol, hostname, port, path, headers, body }) => {
    const [pathname = "/", query = ""] = path.split("?", 2);
    const hash = createHash("sha256");
    for (const piece of body) hash.update(piece);
    const host = headers.get("host") ?? hostname;
    const signed = await signer.sign(
      new HttpRequest({
        method,
        protocol: `${protocol}:`,
        hostname,
        port,
        path: pathname,
        query: Object.fromEntries(new URLSearchParams(query)),
        // Only what we write is signed: a header that a proxy on the way changes would break the signature.
        headers: {
          host,
          "content-type": headers.get("content-type") ?? "application/json",
          "x-amz-content-sha256": hash.digest("hex"),
        },
      }),
      { signingDate: new Date(clock.now()) },
    );
    for (const [name, value] of Object.entries(signed.headers)) headers.set(name.toLowerCase(), value);
  };
}

/** The hash interface of the signer over node's own hashes. */
class NodeSha256 {
  #hash: Hash | Hmac;
  readonly #secret: string | Uint8Array | undefined;

  constructor(secret?: string | ArrayBuffer | ArrayBufferView) {
    this.#secret = secret === undefined || typeof secret === "string" ? secret : bytesOf(secret);
    this.#hash = this.#create();
  }

  update(data: string | ArrayBuffer | ArrayBufferView): void {
    this.#hash.update(typeof data === "string" ? data : bytesOf(data));
  }

  digest(): Promise<Uint8Array> {
    return Promise.resolve(new Uint8Array(this.#hash.digest()));
  }

  reset(): void {
    this.#hash = this.#create();
  }

  #create(): Hash | Hmac {
    return this.#secret === undefined ? createHash("sha256") : createHmac("sha256", this.#secret);
  }
}

function bytesOf(data: ArrayBuffer | ArrayBufferView): Uint8Array {
  return ArrayBuffer.isView(data)
    ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
    : new Uint8Array(data);
}
