/**
 * `backendTLS`: configures TLS to a backend, with custom roots, a client certificate, or another server name. The
 * policy has no hooks. The backend's connection pool reads the settings.
 */
import { z } from "zod";
import { definePolicy } from "../../core/policy.ts";
import { filePath } from "../../core/schema.ts";
import { checkCertificates } from "../../http/certificates.ts";

export const backendTls = definePolicy({
  kind: "backendTLS",
  doc: "Uses TLS to the backend, with custom root certificates, a client certificate or another server name.",
  scopes: ["route", "backend"],
  merge: "innermost",
  protection: () => "none",
  schema: z
    .strictObject({
      root: filePath().optional().describe("A PEM file with trusted certificates, instead of the system's."),
      cert: filePath().optional().describe("A PEM file with the client certificate."),
      key: filePath().optional().describe("A PEM file with the key of the client certificate."),
      hostname: z.string().optional().describe("The expected name in the certificate. Default: the backend's host."),
      subjectAltNames: z
        .array(z.string().min(1))
        .min(1)
        .max(16)
        .optional()
        .describe("DNS names or URIs, at least one of which the certificate must contain. Replaces `hostname`."),
      insecure: z.boolean().optional().describe("Accepts any certificate. Only for development."),
    })
    .refine((config) => (config.cert === undefined) === (config.key === undefined), {
      message: "`cert` and `key` must be set together",
    }),

  compile(config, env) {
    const ca = config.root === undefined ? undefined : env.readFile(config.root);
    const cert = config.cert === undefined ? undefined : env.readFile(config.cert);
    const key = config.key === undefined ? undefined : env.readFile(config.key);
    checkCertificates({ ca, cert, key });
    return {
      settings: {
        backendTls: {
          ...(ca === undefined ? {} : { ca }),
          ...(cert === undefined ? {} : { cert }),
          ...(key === undefined ? {} : { key }),
          ...(config.hostname === undefined ? {} : { servername: config.hostname }),
          ...(config.subjectAltNames === undefined ? {} : { names: config.subjectAltNames }),
          ...(config.insecure === undefined ? {} : { insecure: config.insecure }),
        },
      },
    };
  },
});
