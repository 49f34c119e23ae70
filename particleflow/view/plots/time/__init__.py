"""Numbers against time, merge trees and phase diagrams."""
