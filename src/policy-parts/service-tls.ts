/**
 * Configures TLS to an external service that a policy calls over gRPC.
 */
import { z } from "zod";
import type { CompileEnv } from "../core/policy.ts";
import { filePath } from "../core/schema.ts";
import { checkCertificates } from "../http/certificates.ts";
import type { TlsOptions } from "../http/http-client.ts";

export const serviceTls = z.strictObject({
  root: filePath().optional().describe("A PEM file with trusted certificates, instead of the system's."),
  hostname: z.string().min(1).max(253).optional().describe("The expected name in the certificate. Default: the host."),
  subjectAltNames: z
    .array(z.string().min(1))
    .min(1)
    .max(16)
    .optional()
    .describe("DNS names or URIs, at least one of which the certificate must contain. Replaces `hostname`."),
  insecure: z
    .boolean()
    .optional()
    .describe("Accepts any certificate, for example one that the service generates when it starts."),
});

/** Throws if the file cannot be read or contains no certificate. */
export function readServiceTls(
  tls: z.output<typeof serviceTls> | undefined,
  env: Pick<CompileEnv, "readFile">,
): TlsOptions | undefined {
  if (tls === undefined) return undefined;
  const ca = tls.root === undefined ? undefined : env.readFile(tls.root);
  checkCertificates({ ca });
  return {
    ...(ca === undefined ? {} : { ca }),
    ...(tls.hostname === undefined ? {} : { servername: tls.hostname }),
    ...(tls.subjectAltNames === undefined ? {} : { names: tls.subjectAltNames }),
    ...(tls.insecure === undefined ? {} : { insecure: tls.insecure }),
  };
}
