/**
 * The SDK of Entracte, a service that runs LLM agents which stop and wait for people: start at
 * {@link dev.entracte.EntracteClient}.
 *
 * <p>Calls block. They throw unchecked exceptions of {@link dev.entracte.errors}. To give one up,
 * interrupt its thread or close its stream: the run goes on. A value that is not there is {@code
 * null} where its description says so.
 */
package dev.entracte;
