/**
 * `backendTLS`: how the gateway speaks TLS to its backends: own roots, a client certificate, another name.
 * It has no hooks: the connection pool of the backend is built from it.
 */
import { z } from "zod";
import { definePolicy } from "../../core/policy.ts";

export const backendTls = definePolicy({
  kind: "backendTLS",
  doc: "Speaks TLS to the backend, with own roots, a client certificate or another server name.",
  scopes: ["route", "backend"],
  merge: "innermost",
  schema: z
    .strictObject({
      root: z
        .string()
        .optional()
        .describe("A PEM file with the certificates that are trusted, instead of the system's."),
      cert: z.string().optional().describe("A PEM file with the client certificate."),
      key: z.string().optional().describe("A PEM file with the key of the client certificate."),
      hostname: z
        .string()
        .optional()
        .describe("The name that the certificate must carry, if it is not the backend's host."),
      insecure: z.boolean().optional().describe("Accepts any certificate. Only for development."),
    })
    .refine((config) => (config.cert === undefined) === (config.key === undefined), {
      message: "cert and key belong together",
    }),

  compile: (config, env) => ({
    settings: {
      backendTls: {
        ...(config.root === undefined ? {} : { ca: env.readFile(config.root) }),
        ...(config.cert === undefined ? {} : { cert: env.readFile(config.cert) }),
        ...(config.key === undefined ? {} : { key: env.readFile(config.key) }),
        ...(config.hostname === undefined ? {} : { servername: config.hostname }),
        ...(config.insecure === undefined ? {} : { insecure: config.insecure }),
      },
    },
  }),
});
