/**
 * Computes an AWS signature (Signature Version 4) by the documented steps, independently of the gateway's signer.
 */
import { createHash, createHmac } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";

export interface SignedParts {
  readonly method: string;
  /** As sent, percent-encoded once. Every service but S3 encodes it once more for the signature. */
  readonly path: string;
  /** Encoded and sorted. */
  readonly query: string;
  /** Lowercase names, sorted. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: string;
  readonly secret: string;
  /** For example 20150830T123600Z. */
  readonly date: string;
  readonly region: string;
  readonly service: string;
}

export function awsSignature(parts: SignedParts): string {
  const { method, path, query, headers, body, secret, date, region, service } = parts;
  const hash = (text: string): string => createHash("sha256").update(text).digest("hex");
  const hmac = (key: string | Buffer, text: string): Buffer => createHmac("sha256", key).update(text).digest();
  const canonical = [
    method,
    path.split("/").map(encodeURIComponent).join("/"),
    query,
    ...headers.map(([name, value]) => `${name}:${value}`),
    "",
    headers.map(([name]) => name).join(";"),
    hash(body),
  ].join("\n");
  const day = date.slice(0, 8);
  const scope = `${day}/${region}/${service}/aws4_request`;
  const toSign = ["AWS4-HMAC-SHA256", date, scope, hash(canonical)].join("\n");
  const key = [region, service, "aws4_request"].reduce((last, part) => hmac(last, part), hmac(`AWS4${secret}`, day));
  return hmac(key, toSign).toString("hex");
}

export interface ReceivedRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** The signature that a server in us-east-1 expects for a request, with the headers that the request says are signed. */
export function expectedSignature(
  { method, url, headers, body }: ReceivedRequest,
  secret: string,
  service: string,
): string {
  const [path = "", ...query] = url.split("?");
  const names = /SignedHeaders=([^,]+)/.exec(headers.authorization ?? "")?.[1]?.split(";") ?? [];
  const parameters = [...new URLSearchParams(query.join("?"))].map((pair) => pair.map(encodeURIComponent).join("="));
  return awsSignature({
    method,
    path,
    query: parameters.sort().join("&"),
    headers: names.map((name) => [name, String(headers[name])]),
    body,
    secret,
    date: String(headers["x-amz-date"]),
    region: "us-east-1",
    service,
  });
}
