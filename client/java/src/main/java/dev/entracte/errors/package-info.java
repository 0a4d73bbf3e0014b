/**
 * What the SDK throws: one unchecked exception for each reason of the contract, below {@link
 * dev.entracte.errors.EntracteException}.
 */
package dev.entracte.errors;
